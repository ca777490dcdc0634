package gitops

import (
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// parents finds the parents of an owner up to the roots, and decides which of them end a
// suspension.
func (r *resolver) parents(o *Owner) {
	if o.resolved || o.visiting || o.found == nil {
		return
	}
	o.visiting = true
	for _, p := range r.ownersOf(o.Ref, o.found.claims) {
		// A Helm release that people made does not apply anything again. A field manager without a
		// name says no more than that a tool has once written the owner.
		if p == o || p.visiting || p.State == Passive || p.Kind == "" {
			continue
		}
		r.parents(p)
		o.Parents = append(o.Parents, p)
		o.depth = max(o.depth, p.depth+1)
		switch {
		case p.Holds():
		case o.ended(p):
			o.Ends = append(o.Ends, p)
		default:
			o.MayEnd = append(o.MayEnd, p)
		}
	}
	o.visiting, o.resolved = false, true
}

// ended reports whether an active parent ends the suspension of an owner. One that writes the whole
// spec does. Flux applies only the fields that Git states, and drops the fields of kubectl
// (fluxcd/pkg, ssa/patch.go; fluxcd/kustomize-controller v1.9.4,
// internal/controller/kustomization_controller.go): what another field manager has set stays. Where
// Git itself states the suspension, Flux owns the field, and it stays as well.
func (o *Owner) ended(parent *Owner) bool {
	if parent.found == nil || parent.found.row.overwrites {
		return true
	}
	return slices.ContainsFunc(o.found.switchedBy, func(name string) bool {
		return strings.HasPrefix(name, "kubectl") || strings.HasPrefix(name, "before-first-apply")
	}) && !slices.Contains(o.found.switchedBy, kube.DefaultFieldManager)
}
