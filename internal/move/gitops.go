package move

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/gitops"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/preflight"
)

// Suspension is an owner that a move suspends on the source.
type Suspension struct {
	Owner object.Ref `json:"owner"`
	// Units are those of the objects that it applies, itself or through the owners below it.
	Units []string `json:"units"`
}

// checkGitOps searches the source for the tools that apply objects of the units. Namespaces stay,
// so that what applies them is no concern.
func checkGitOps(ctx context.Context, c *checker) error {
	search := gitops.NewSearch()
	for _, n := range c.nodes {
		if n.GroupKind() == kube.NamespaceKind.GroupKind {
			continue
		}
		raw, err := c.contents.Bytes(n.Ref)
		if err != nil {
			return err
		}
		search.Add(n.Ref, n.Unit, raw)
	}
	found, err := search.Owners(ctx, c.Source.Reader, c.Source.Kinds)
	if err != nil {
		return err
	}
	for _, f := range found.Source(c.spec.SuspendGitOps) {
		c.add(f)
	}
	if !c.spec.SuspendGitOps {
		return nil
	}
	units := found.UnitsOf()
	for _, ref := range found.Suspend() {
		c.suspend = append(c.suspend, Suspension{Owner: ref, Units: units[ref]})
	}
	return c.checkSuspendRights(ctx)
}

// checkSuspendRights asks the source whether our credentials allow to suspend the owners.
func (c *checker) checkSuspendRights(ctx context.Context) error {
	var kinds []kube.Kind
	seen := map[string]bool{}
	for _, s := range c.suspend {
		if k, ok := kube.FindKind(c.Source.Kinds, s.Owner.GroupKind()); ok && !seen[k.String()] {
			seen[k.String()] = true
			kinds = append(kinds, k)
		}
	}
	missing, err := preflight.Rights(ctx, c.Source.Prober, kinds,
		func(kube.Kind) []preflight.Right {
			return []preflight.Right{{Verb: "get"}, {Verb: "update"}}
		})
	for _, m := range missing {
		c.add(m.Finding("source"))
	}
	return err
}
