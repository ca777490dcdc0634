package restore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// findPlatform finds the namespaces of providers and of the platform, on both sides: by the
// inventories of clusterctl, by labels, and by the Deployments of the target. Providers that were
// installed with Helm, by an operator or by GitOps are in no inventory. The controllers there trust
// the Secrets of their own namespace (invariant I8).
func (p *planner) findPlatform(ctx context.Context) error {
	for _, pr := range slices.Concat(p.Providers, p.Snapshot.About.Providers) {
		p.addPlatform(pr.Namespace, capi.Component{Name: pr.Name, Provider: true})
	}
	for _, n := range p.nodes {
		if n.GroupKind() != capi.Namespace {
			continue
		}
		raw, err := p.Contents.Bytes(n.Ref)
		if err != nil {
			return err
		}
		p.addPlatform(n.Name, capi.PlatformNamespace(n.Name, capi.LabelsOf(gjson.ParseBytes(raw))))
	}
	if err := p.listPlatform(ctx, kube.NamespaceKind, func(raw []byte) {
		name := strings.Clone(gjson.GetBytes(raw, "metadata.name").String())
		p.targetNamespaces[name] = true
		p.addPlatform(name, capi.PlatformNamespace(name, capi.LabelsOf(gjson.ParseBytes(raw))))
	}); err != nil {
		return err
	}
	return p.listPlatform(ctx, kube.DeploymentKind, func(raw []byte) {
		p.addPlatform(gjson.GetBytes(raw, "metadata.namespace").String(),
			capi.PlatformWorkload(capi.LabelsOf(gjson.ParseBytes(raw))))
	})
}

func (p *planner) addPlatform(namespace string, found capi.Component) {
	if found.Name == "" {
		return
	}
	known := p.platform[namespace]
	p.platform[strings.Clone(namespace)] = capi.Component{
		Name:     cmp.Or(known.Name, strings.Clone(found.Name)),
		Provider: known.Provider || found.Provider}
}

// listPlatform lists the metadata of a kind on the target. Without the right to list it, what is
// known by the other ways counts.
func (p *planner) listPlatform(ctx context.Context, k kube.Kind, fn func(raw []byte)) error {
	_, err := p.Reader.List(ctx, k, kube.ListOptions{Metadata: true}, func(raw []byte) error {
		fn(raw)
		return nil
	})
	if apierrors.IsForbidden(err) {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeNotAllowed,
			Message: "the credentials may not list " + k.Resource + " on the target: namespaces of " +
				"providers and platforms may not all be recognised, and the snapshot may have objects in them",
			Hint: "grant list of " + k.Resource + ", or check the namespaces of the plan"})
		return nil
	}
	return err
}
