package restore

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// checkNeeds reports references to objects that the restore does not bring. It is an error when
// the object that has the reference cannot be reconciled without the other one, and the target has
// no such object.
func checkNeeds(ctx context.Context, p *planner) error {
	for n := range p.active {
		needs, err := p.needsOf(n)
		if err != nil {
			return err
		}
		for _, need := range needs {
			named := p.Snapshot.Graph.Node(need.Ref)
			if named != nil && p.skipped[named] == "" || need.Optional || need.Back {
				continue
			}
			required, err := p.requires(ctx, n, need)
			if err != nil {
				return err
			}
			f := object.Finding{Severity: object.Warning, Code: object.CodeNeedMissing,
				Message: fmt.Sprintf("it names %s in %s, which is not in the snapshot", need.Ref, need.Field),
				Hint:    "see that the target has it before the release"}
			switch {
			case named != nil && !required:
				continue // that it is left out is a finding of its own
			case named != nil:
				f.Message = fmt.Sprintf("it names %s in %s, which is not restored: %s", need.Ref, need.Field,
					p.skipped[named])
			}
			if required && !p.Spec.Force.Has(object.CodeNeedMissing) {
				f.Severity = object.Error
				f.Hint = "controllers cannot work without it, and may report Machines as failed and " +
					"replace them: use a snapshot that has it, or create it on the target as it was"
			}
			p.add(n, f)
		}
	}
	return nil
}

// requires reports whether n cannot be reconciled without what it names, and the target has no such
// object. An object that is being deleted may lose what it names before it is gone itself.
func (p *planner) requires(ctx context.Context, n *graph.Node, need graph.Need) (bool, error) {
	row := p.rows().Row(n.GroupKind())
	if n.Deleting {
		return false, nil
	}
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil || !row.Requires(raw, need.Field) {
		return false, err
	}
	live, err := p.liveOwner(ctx, need.Ref)
	return err == nil && live.GetUID() == "", err
}
