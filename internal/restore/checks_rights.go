package restore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/preflight"
)

// finalizersRight is what the admission plugin OwnerReferencesPermissionEnforcement asks of a write
// that sets blockOwnerDeletion: the right to update the finalizers of the owner
// (k8s.io/kubernetes v1.36, plugin/pkg/admission/gc/gc_admission.go). OpenShift has it on; whether
// it is on cannot be asked.
var finalizersRight = preflight.Right{Verb: "update", Subresource: "finalizers"}

// checkRights asks the target whether our credentials allow all that the restore does. What only a
// rollback does is a warning for a restore, which an outage must not wait for, and an error for a
// move.
func checkRights(ctx context.Context, p *planner) error {
	undo := []preflight.Right{{Verb: "patch"}, {Verb: "delete"}}
	owners := p.blockingOwners()
	missing, err := preflight.Rights(ctx, p.Prober, slices.Collect(maps.Values(p.kinds)),
		func(k kube.Kind) []preflight.Right {
			rights := []preflight.Right{{Verb: "get"}, {Verb: "list"}, {Verb: "create"}, {Verb: "update"}}
			if k.Status {
				rights = append(rights, preflight.Right{Verb: "update", Subresource: "status"})
			}
			if k.GroupKind != kube.NamespaceKind.GroupKind { // namespaces stay
				rights = append(rights, undo...)
			}
			if owners[k.GroupKind] {
				rights = append(rights, finalizersRight)
			}
			return rights
		})
	for _, m := range missing {
		f := m.Finding("target")
		switch {
		case m.Right == finalizersRight:
			f.Severity = object.Warning
			f.Message += "; an API server with the admission plugin OwnerReferencesPermissionEnforcement, " +
				"such as that of OpenShift, refuses owner references to it"
		case slices.Contains(undo, m.Right) && !p.Spec.SourceAtWork:
			f.Severity = object.Warning
			f.Message += "; the restore could not be rolled back"
		}
		p.addAll(f)
	}
	return err
}

// blockingOwners returns the kinds of owners whose deletion waits for what they own
// (blockOwnerDeletion).
func (p *planner) blockingOwners() map[object.GroupKind]bool {
	kinds := map[object.GroupKind]bool{}
	for n := range p.active {
		raw, err := p.Contents.Bytes(n.Ref)
		if err != nil || len(n.Owners) == 0 {
			continue // another check reports it
		}
		for _, o := range gjson.GetBytes(raw, "metadata.ownerReferences").Array() {
			if o.Get("blockOwnerDeletion").Bool() {
				group, _, _ := strings.Cut(o.Get("apiVersion").String(), "/")
				kinds[object.GroupKind{Group: group, Kind: o.Get("kind").String()}] = true
			}
		}
	}
	return kinds
}
