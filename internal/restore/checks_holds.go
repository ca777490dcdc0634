package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// checkHolds reports finalizers and deletion hooks of controllers that are not of Cluster API. They
// are restored as they are, and a deletion on the target waits for their controllers. Each has one
// finding, since all Machines of a fleet may carry it.
func checkHolds(_ context.Context, p *planner) error {
	holds := map[string][]object.Ref{}
	for n := range p.active {
		names, err := p.foreignHolds(n)
		if err != nil {
			return err
		}
		for _, name := range names {
			holds[name] = append(holds[name], n.Ref)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		of := holds[name]
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeForeignHold, Ref: of[0],
			Message: fmt.Sprintf("%d objects carry %.200q: on the target their deletion waits for the "+
				"controller that removes it", len(of), name),
			Hint: "check that this controller runs on the target"})
	}
	return nil
}

// foreignHolds returns the foreign finalizers of an object and, of a Machine, its deletion hooks.
func (p *planner) foreignHolds(n *graph.Node) (names []string, err error) {
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil {
		return nil, err
	}
	for _, finalizer := range gjson.GetBytes(raw, "metadata.finalizers").Array() {
		if capi.IsForeignHold(finalizer.String()) {
			names = append(names, finalizer.String())
		}
	}
	if n.GroupKind() != capi.Machine {
		return names, nil
	}
	for annotation := range gjson.GetBytes(raw, "metadata.annotations").Map() {
		if capi.IsDeletionHook(annotation) && capi.IsForeignHold(annotation) {
			names = append(names, annotation)
		}
	}
	return names, nil
}
