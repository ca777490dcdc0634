package move

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/autoscaler"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// checkAutoscalers reports cluster autoscalers of the source that work on the units. The plan of
// the copy reports those of the target, and Secrets with a kubeconfig of the source.
func checkAutoscalers(ctx context.Context, c *checker) error {
	units := map[string]bool{}
	var names []string
	for _, n := range c.nodes {
		if n.Unit != "" && !units[n.Unit] {
			units[n.Unit] = true
			names = append(names, n.Unit)
		}
	}
	found, err := autoscaler.Find(ctx, c.Source.Reader)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		c.add(autoscaler.Unread("source", err))
	}
	for _, f := range autoscaler.Findings(found, names, "source", func(namespace, name string) bool {
		u, err := c.Source.Reader.Get(ctx, kube.SecretKind, namespace, name)
		if err != nil {
			return false // an autoscaler without its Secret does not run
		}
		raw, err := u.MarshalJSON()
		return err == nil && autoscaler.HasKubeconfig(raw, c.Source.options.API)
	}) {
		c.add(f)
	}
	return nil
}
