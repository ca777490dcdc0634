package restore

import (
	"encoding/json"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// checkSettled reports an object whose controllers were in the middle of something that they would
// begin again with a copy of it.
func (p *planner) checkSettled(n *graph.Node) error {
	gate := p.rows().Row(n.GroupKind()).Pause.Gate()
	if gate == nil {
		return nil
	}
	u, err := decodeObject(p.rows(), p.Contents, n.Ref)
	if err != nil {
		return err
	}
	why, harmful := gate.Unsettled(u.Object)
	if why == "" {
		return nil
	}
	f := object.Finding{Severity: object.Warning, Code: object.CodeNotSettled, Message: why,
		Hint: "its controller begins that again after the release; it writes nothing to a disk"}
	if harmful {
		f.Severity = object.Error
		f.Message += "; its controller would write to the disk or to the firmware of a machine"
		f.Hint = "let its controller finish that, or end it there, and take another snapshot; or leave " +
			"its workload cluster out"
	}
	p.add(n, f)
	return nil
}

// checkSharedPause: in a move, nothing on the source may use a shared object of some kinds any more
// once it is copied.
func (p *planner) checkSharedPause(n *graph.Node) error {
	row := p.rows().Row(n.GroupKind())
	pool := row.PausesPool() && len(p.users[n]) > 0 && !p.Spec.Force.Has(object.CodePoolShared)
	if !p.Spec.SourceAtWork || n.Unit != "" || !row.PausedShared && !pool || p.BeforePause {
		return nil
	}
	obj, err := marked(p.Contents, n.Ref)
	if err != nil {
		return err
	}
	switch planned := p.Spec.Only != nil; { // a batch is planned once its objects are paused
	case !planned && capi.PausedByUs(obj) && !pool: // an ended move may have left a pool paused
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeLocked,
			Message: "an operation that is not at its end has paused it",
			Hint:    "resume that operation or roll it back"})
	case planned && !p.rows().StillPaused(obj):
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeNotPaused,
			Message: "it is not paused on the source: it is new, or somebody ended its pause",
			Hint:    "move it in another operation"})
	}
	return nil
}

// marked decodes an object with the marks of operations, which decodeObject leaves out.
func marked(c Contents, ref object.Ref) (obj map[string]any, err error) {
	raw, err := c.Bytes(ref)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &obj); err != nil {
		return nil, fmt.Errorf("decode %s: %w", ref, jsonError(err))
	}
	return obj, nil
}
