package service

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// newerWith returns a function that names the newest snapshot of the source when that has an
// object. It opens that snapshot once, when it is asked for the first time. One that no trusted key
// signed, or that cannot be read, is named to nobody.
func (o *restoreInputs) newerWith(ctx context.Context) func(r object.Ref) string {
	chosen, st, rows := o.signed, o.store, o.rows
	newest := sync.OnceValue(func() *snapshot.Snapshot {
		e, _, err := st.Newest(ctx, chosen.Source.UID, store.Which{})
		if err != nil || e == nil || e.Sequence <= chosen.Sequence || e.RequireTrusted() != nil {
			return nil
		}
		s, err := snapshot.Open(ctx, st, e.Envelope, rows)
		if err != nil {
			return nil
		}
		return s
	})
	return func(r object.Ref) string {
		s := newest()
		if s == nil || s.Graph.Node(r) == nil {
			return ""
		}
		return fmt.Sprintf("%s of %s", s.Envelope.ID, s.Envelope.Time.UTC().Format(time.RFC3339))
	}
}
