package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// retained finds out until when the storage retains what the snapshot names (Object Lock), and
// reports less than was asked for. It makes the snapshot no less than whole.
func (r *run) retained(ctx context.Context) error {
	warn := func(message, hint string) {
		r.add(store.Finding{Finding: object.Finding{Severity: object.Warning,
			Code: object.CodeRetainedShort, Message: message, Hint: hint}})
	}
	retained, err := r.Store.RetainedUntil(ctx, r.Snapshot)
	switch {
	case ctx.Err() != nil, errors.Is(err, store.ErrUnreachable), errors.Is(err, store.ErrStoreMissing):
		return err
	case err != nil:
		warn("until when the storage retains the snapshot cannot be read: "+err.Error(),
			"grant GetObjectRetention")
		return nil
	}
	r.Retained = retained
	if retained.Short == 0 || !retained.Least.After(time.Now()) {
		return nil
	}
	until := "until " + retained.Until.UTC().Format(time.RFC3339)
	if retained.Until.IsZero() {
		until = "not at all, as far as these credentials may see"
	}
	warn(fmt.Sprintf("the storage retains %d of the %d keys that the snapshot needs for less than "+
		"was asked, until %s; such as %s, %s", retained.Short, retained.Keys,
		retained.Least.UTC().Format(time.RFC3339), retained.First, until),
		"check that the bucket has Object Lock and that nobody wrote over the keys; take a full "+
			"snapshot, which writes and retains everything again")
	return nil
}
