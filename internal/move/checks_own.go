package move

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// checkOwn reports the Clusters of the source and of the target themselves, by the kubeconfig that
// Cluster API made of each. Both may be moved: a management cluster that is replaced moves its own
// Cluster, too, and one that is to manage itself gets it from where it was made.
func checkOwn(_ context.Context, c *checker) error {
	own := map[object.Ref]*workload.Kubeconfig{} // by Cluster
	withCA := map[string]int{}                   // Clusters by CA: some share that of a proxy
	for _, n := range c.nodes {
		if !isCluster(n) {
			continue
		}
		k, err := c.kubeconfigOf(n)
		if err != nil {
			return err
		}
		if k != nil {
			own[n.Ref] = k
			withCA[strings.Join(k.CA(), " ")]++
		}
	}
	for _, n := range c.nodes {
		k := own[n.Ref]
		if k == nil {
			continue
		}
		is := func(api *kube.API) bool {
			return api != nil && len(api.CA) > 0 && slices.Equal(api.CA, k.CA()) &&
				(k.Server() == api.Server || withCA[strings.Join(k.CA(), " ")] == 1)
		}
		f := object.Finding{Severity: object.Warning, Code: object.CodeOwnCluster, Unit: n.Unit,
			Ref: n.Ref}
		switch {
		case is(c.Source.options.API):
			f.Message = "it is the Cluster of the source management cluster itself: after the release the " +
				"target manages the machines on which the source runs, and may replace them while the move " +
				"still needs the source"
			f.Hint = "move it alone, after all others"
		case is(c.Target.options.API):
			f.Message = "it is the Cluster of the target management cluster itself: after the release the " +
				"target manages the machines on which it runs"
			f.Hint = "move it alone, after all others; take a snapshot of the target afterwards"
		default:
			continue
		}
		c.add(f)
	}
	return nil
}

// kubeconfigOf returns the kubeconfig of a Cluster, or nil when it has none that can be read.
func (c *checker) kubeconfigOf(cluster *graph.Node) (*workload.Kubeconfig, error) {
	raw, err := c.contents.Bytes(object.Ref{Kind: "Secret", Namespace: cluster.Namespace,
		Name: cluster.Name + "-kubeconfig"})
	if errors.Is(err, snapshot.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k, err := workload.ParseEncoded(gjson.GetBytes(raw, "data.value").String())
	if err != nil {
		return nil, nil //nolint:nilerr // other checks say what is wrong with it
	}
	return k, nil
}
