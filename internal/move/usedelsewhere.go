package move

import (
	"context"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// keepUsedElsewhere takes out of units what others have come to use since the move was planned, and
// reports it: it stays on the source. The snapshot of a batch shows the namespaces of its units
// alone. An object in the namespace of its workload cluster is used from there only; what is
// elsewhere, such as a Secret of credentials, may have got other users. Only such objects make it
// look at the whole source.
func (m *run) keepUsedElsewhere(ctx context.Context, units []restore.Unit) ([]restore.Unit, error) {
	var away []object.Ref
	for _, u := range units {
		namespace, _, _ := strings.Cut(u.Name, "/")
		for _, o := range u.Objects {
			if o.Action != restore.Skip && o.Namespace != "" && o.Namespace != namespace {
				away = append(away, o.Ref)
			}
		}
	}
	if len(away) == 0 {
		return units, nil
	}
	v, err := m.captures.after(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	keep := map[object.Ref]bool{}
	for _, ref := range away {
		if n := v.graph.Node(ref); n != nil && n.Shared {
			keep[ref] = true
			if err := m.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{
				Severity: object.Warning, Code: object.CodeSharedKept, Ref: ref,
				Message: "it stays on the source: another workload cluster there has come to use it",
				Hint:    "remove it from the source when nothing there uses it any more",
			})); err != nil {
				return nil, err
			}
		}
	}
	return leavingOut(units, keep), nil
}

// leavingOut returns units without some of their objects.
func leavingOut(units []restore.Unit, keep map[object.Ref]bool) []restore.Unit {
	var out []restore.Unit
	for _, u := range units {
		var objects []restore.Object
		for _, o := range u.Objects {
			if keep[o.Ref] {
				o.Action = restore.Skip
			}
			objects = append(objects, o)
		}
		u.Objects = objects
		out = append(out, u)
	}
	return out
}
