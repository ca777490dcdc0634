package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// filterUnsafe leaves out what is never created from a snapshot (invariant I8): the source's own
// inventory, what belongs to the API server or to the providers, kinds that are not of Cluster API,
// and Secrets that grant access to the management cluster itself.
func (p *planner) filterUnsafe() error {
	for _, n := range p.nodes {
		if p.Snapshot.Graph.CapturedOnly(n) {
			p.leaveOut(n, p.capturedOnly(n))
			continue
		}
		why, err := p.unsafe(n)
		if err != nil {
			return err
		}
		if why != "" {
			p.skipped[n] = why
		}
	}
	return nil
}

// capturedOnly returns the finding about an object of a kind of which nothing is known.
func (p *planner) capturedOnly(n *graph.Node) object.Finding {
	f := object.Finding{Severity: object.Warning, Code: object.CodeCapturedOnly,
		Message: "it is captured and not restored: nothing is known of its kind",
		Hint: "when it is needed, add " + n.GroupKind().String() + " to spec.kinds of mgmtd, or create " +
			"it by hand"}
	if p.Spec.SourceAtWork {
		f.Message = "it stays on the source: nothing is known of its kind"
	}
	return f
}

// unsafe says why an object is never created from a snapshot; empty when it may be.
func (p *planner) unsafe(n *graph.Node) (why string, err error) {
	namespace := n.Namespace
	if n.GroupKind() == kube.NamespaceKind.GroupKind {
		namespace = n.Name
	}
	secretType, err := p.secretType(n)
	if err != nil {
		return "", err
	}
	// the kinds as the target serves them: the snapshot is untrusted
	k, known := kube.FindKind(p.Kinds, n.GroupKind())
	switch {
	case n.GroupKind() == capi.Provider:
		return "the target has a provider inventory of its own", nil
	case strings.HasPrefix(namespace, "kube-"):
		return "nothing is restored into the API server's own namespaces", nil
	case n.Group != "" && known && !k.Contract && !p.rows().Known(n.GroupKind()):
		return "not a kind of Cluster API", nil
	case slices.Contains(grantAccess, secretType):
		return "Secrets of type " + secretType + " grant access to a management cluster", nil
	case p.platform[namespace].Name != "":
		return p.unsafeInPlatform(n, namespace, secretType), nil
	}
	return "", nil
}

// secretType returns the type of a Secret; empty for any other object.
func (p *planner) secretType(n *graph.Node) (string, error) {
	if n.GroupKind() != kube.SecretKind.GroupKind {
		return "", nil
	}
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil {
		return "", err
	}
	return gjson.GetBytes(raw, "type").String(), nil
}

// unsafeInPlatform says why an object is left out of a namespace of a provider or another platform;
// empty when it may be created there. Workload clusters can live in the namespace of a provider, as
// those of k0rdent do, and identities have their Secrets there. Such an object belongs to a
// workload cluster, or one names it that is itself safe. Nothing that is there is overwritten.
func (p *planner) unsafeInPlatform(n *graph.Node, namespace, secretType string) string {
	component := p.platform[namespace]
	lives := strings.HasPrefix(n.Unit, namespace+"/") // its workload cluster, in this namespace
	switch {
	case !component.Provider || n.GroupKind() == kube.NamespaceKind.GroupKind:
	case !p.targetNamespaces[namespace]:
		return fmt.Sprintf("the target has no namespace %s, where %s is on the source", namespace,
			component.Name)
	case n.Group != "" && (n.Unit != "" || len(p.users[n]) > 0):
		return ""
	case n.GroupKind() == kube.SecretKind.GroupKind && !slices.Contains(ofProviders, secretType):
	case lives || p.isNamedFromInside(n):
		return ""
	}
	return "nothing is restored into the namespaces of providers and platforms: " + component.Name
}

// grantAccess are the types of Secrets that are credentials of a management cluster.
var grantAccess = []string{"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}

// ofProviders are the types of Secrets that may be created in the namespace of a provider. Others,
// such as those of cert-manager, belong to what is installed there.
var ofProviders = []string{"", "Opaque", "cluster.x-k8s.io/secret", "helm.sh/release.v1"}

// isNamedFromInside reports whether an identity names an object, or an object of its own namespace
// does. That one of another namespace names it is no reason: everybody who may write there can.
func (p *planner) isNamedFromInside(n *graph.Node) bool { return p.namedBy(n) != nil }

// namedBy returns the first identity, or object of the same namespace, that names an object.
func (p *planner) namedBy(n *graph.Node) *graph.Node {
	for _, by := range p.nodes {
		if !capi.IsIdentity(by.GroupKind()) && by.Namespace != n.Namespace {
			continue
		}
		if slices.ContainsFunc(by.Needs, func(need graph.Need) bool { return need.Ref == n.Ref }) {
			return by
		}
	}
	return nil
}

// reportFiltered reports what filterUnsafe left out. It is an error for a Cluster, without which
// its unit cannot be restored, and for an object of a unit that is not of Kubernetes itself: its
// provider would find the unit released without it (invariant I8 leaves nothing out silently). So
// it is for a Secret of a provider's namespace that units need and that the target has not.
func (p *planner) reportFiltered(ctx context.Context) error {
	for _, n := range p.nodes {
		why := p.skipped[n]
		f := object.Finding{Severity: object.Warning, Code: object.CodeRefused, Message: why,
			Hint: "create it by hand if something needs it"}
		switch {
		case why == "" || n.GroupKind() == capi.Provider || why == string(object.CodeCapturedOnly):
			continue
		case n.GroupKind() == kube.NamespaceKind.GroupKind && p.targetNamespaces[n.Name]:
			continue // it is there
		case n.GroupKind() == capi.Cluster:
			f.Severity, f.Hint = object.Error, "workload clusters live in namespaces of their own or of "+
				"their provider; create this one by hand if it must be there"
		case n.Unit != "" && n.Group != "" && !p.Spec.Force.Has(object.CodeRefused):
			f.Severity, f.Hint = object.Error, "its workload cluster would be released without it: "+
				"install its provider on the target with clusterctl, whose labels on the CRD make it a "+
				"kind of Cluster API"
		case p.platform[n.Namespace].Provider && (n.Unit != "" || len(p.users[n]) > 0) &&
			!p.Spec.Force.Has(object.CodeRefused):
			missed, err := p.isMissed(ctx, n)
			if err != nil {
				return err
			}
			if missed {
				f.Severity, f.Hint = object.Error, "create it by hand on the target, which lacks it: what "+
					"names it would be released without it"
			}
		}
		p.add(n, f)
	}
	return nil
}

// isMissed reports whether an object is a Secret that the target lacks and that something needs
// there. One that grants access to the source is of no use, and no controller waits for the storage
// of a Helm release.
func (p *planner) isMissed(ctx context.Context, n *graph.Node) (bool, error) {
	secretType, err := p.secretType(n)
	_, helm := capi.HelmStorageOf(n.Ref)
	if err != nil || helm || n.GroupKind() != kube.SecretKind.GroupKind ||
		slices.Contains(grantAccess, secretType) {
		return false, err
	}
	_, err = p.Reader.Get(ctx, kube.SecretKind, n.Namespace, n.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("get %s: %w", n.Ref, err)
	}
	return err != nil, nil
}

// checkProviderNamespaces says which objects are created in namespaces of providers, and for what:
// the controllers there trust what they find.
func checkProviderNamespaces(_ context.Context, p *planner) error {
	for n := range p.active {
		component := p.platform[n.Namespace]
		if component.Name == "" || p.existing[n.Ref] != "" || n.Unit != "" {
			continue
		}
		message := "it is created in the namespace of provider " + component.Name
		if by := p.namedBy(n); by != nil {
			message += ": " + by.Ref.String() + " names it"
		}
		p.add(n, object.Finding{Severity: object.Info, Code: object.CodeProviderNamespace,
			Message: message})
	}
	return nil
}
