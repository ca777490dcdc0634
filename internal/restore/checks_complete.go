package restore

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// checkComplete: a workload cluster of which the snapshot left out an object is not restored
// without it.
func checkComplete(_ context.Context, p *planner) error {
	omitted := map[string][]object.Ref{}
	for _, o := range p.Snapshot.Omitted {
		omitted[o.Unit] = append(omitted[o.Unit], o.Ref)
	}
	finding := func(refs []object.Ref) object.Finding {
		f := object.Finding{Severity: object.Error, Code: object.CodeIncomplete,
			Message: fmt.Sprintf("the snapshot left out %s, which has too many references", refs[0]),
			Hint:    "use a snapshot that has it"}
		if len(refs) > 1 {
			f.Message = fmt.Sprintf("the snapshot left out %d objects with too many references, for "+
				"example %s", len(refs), refs[0])
			f.Hint = "use a snapshot that has them"
		}
		return f
	}
	for n := range p.active {
		if refs := omitted[n.Unit]; n.GroupKind() == capi.Cluster && len(refs) > 0 {
			p.add(n, finding(refs))
		}
	}
	if refs := omitted[""]; len(refs) > 0 {
		f := finding(refs)
		f.Severity = object.Warning
		p.addAll(f)
	}
	return nil
}
