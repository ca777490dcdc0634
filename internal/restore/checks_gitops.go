package restore

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/autoscaler"
	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/gitops"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// checkGitOps searches the target for the tools that will apply what is restored: those that the
// objects name, and those whose inventories list them.
func checkGitOps(ctx context.Context, p *planner) error {
	search := gitops.NewSearch()
	for n := range p.active {
		if n.GroupKind() == kube.NamespaceKind.GroupKind {
			continue
		}
		raw, err := p.Contents.Bytes(n.Ref)
		if err != nil {
			return err
		}
		search.Add(n.Ref, n.Unit, raw)
	}
	found, err := search.Owners(ctx, p.Reader, p.Kinds)
	if err != nil {
		return err
	}
	p.addAll(found.Target(p.Spec.SourceAtWork)...)
	return nil
}

// checkAutoscalers reports cluster autoscalers of the target that work on the units, and Secrets
// with a kubeconfig of the source.
func checkAutoscalers(ctx context.Context, p *planner) error {
	var units []string
	for n := range p.active {
		switch n.GroupKind() {
		case capi.Cluster:
			units = append(units, n.Unit)
		case capi.Secret:
			raw, err := p.Contents.Bytes(n.Ref)
			if err != nil {
				return err
			}
			if autoscaler.HasKubeconfig(raw, p.Snapshot.About.API) {
				p.addAll(autoscaler.InSecret(n.Ref, n.Unit))
			}
		}
	}
	found, err := autoscaler.Find(ctx, p.Reader)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case apierrors.IsForbidden(err):
		return nil // a check before this one reports it
	case err != nil:
		p.addAll(autoscaler.Unread("target", err))
	}
	p.addAll(autoscaler.Findings(found, units, "target", nil)...)
	return nil
}
