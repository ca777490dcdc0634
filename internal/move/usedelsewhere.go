package move

import (
	"context"
	"encoding/json"
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
	away := map[object.Ref]string{} // with their units
	for _, u := range units {
		namespace, _, _ := strings.Cut(u.Name, "/")
		for _, o := range u.Objects {
			if o.Action != restore.Skip && o.Namespace != "" && o.Namespace != namespace {
				away[o.Ref] = u.Name
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
	for ref, unit := range away {
		// An attempt that was interrupted has perhaps removed what used it here.
		if n := v.graph.Node(ref); n != nil && (n.Shared || n.Unit != "" && n.Unit != unit) {
			keep[ref] = true
			if err := m.keptShared(ctx, ref, "it stays on the source: another workload cluster there has "+
				"come to use it", hintUsed); err != nil {
				return nil, err
			}
		}
	}
	return leavingOut(units, keep), nil
}

// recordKept records in the step of its removal which objects of a unit stay on the source. A later
// attempt may find the source half removed, where nothing shows any more what uses them.
func recordKept(ctx context.Context, h *catalog.StepHandle, b *batch, u restore.Unit) error {
	planned := map[object.Ref]bool{}
	for _, of := range b.Copy.Units {
		for _, o := range of.Objects {
			planned[o.Ref] = o.Action != restore.Skip
		}
	}
	var kept []catalog.Value
	for _, o := range u.Objects {
		if o.Action == restore.Skip && planned[o.Ref] {
			kept = append(kept, catalog.Value{Key: o.Ref.String(), Data: json.RawMessage("true")})
		}
	}
	if len(kept) == 0 {
		return nil
	}
	if err := h.Record(ctx, kept...); err != nil {
		return err
	}
	return h.Sync(ctx)
}

// leaveKept takes out of units what earlier attempts to remove them have left on the source.
func (m *run) leaveKept(ctx context.Context, units []restore.Unit) ([]restore.Unit, error) {
	keep := map[object.Ref]bool{}
	for _, u := range units {
		kept, err := m.Journal.Values(ctx, retireStep(u.Name))
		if err != nil {
			return nil, err
		}
		for _, o := range u.Objects {
			if _, is := kept[o.Ref.String()]; is {
				keep[o.Ref] = true
			}
		}
	}
	if len(keep) == 0 {
		return units, nil
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
