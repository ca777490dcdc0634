package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

var errNotVerified = errors.New("the snapshot is not as it should be in the store")

// takeSnapshot creates the snapshot that a batch is copied from, verifies its structure in the
// store (invariant I2), and adds it to the index. The result holds the contents in memory.
func (m *run) takeSnapshot(ctx context.Context) (*snapshot.Result, error) {
	o := m.Source.options
	o.Store, o.WithContents, o.Writer, o.Progress = m.Store, true, m.Program, m.Journal.Progress
	o.State, o.Cache = m.Catalog.SnapshotState(m.Store.ID(), o.SourceUID), m.Cache
	var err error
	if o.Known, err = m.Catalog.HighestSequence(ctx, m.Store.ID(), o.SourceUID); err != nil {
		return nil, err
	}
	r, err := createVerified(ctx, o)
	if errors.Is(err, errNotVerified) { // older keys that it reuses may be damaged
		o.Full = true
		r, err = createVerified(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	err = m.Catalog.UpdateOperation(ctx, m.Journal.Operation(),
		func(op *catalog.Operation) { op.SnapshotID = string(r.ID) })
	if err == nil {
		err = m.Catalog.PutSnapshot(ctx, catalog.RecordOf(r.Signed))
	}
	return r, err
}

// createVerified creates a snapshot and verifies its structure in the store. The error wraps
// errNotVerified when that has findings.
func createVerified(ctx context.Context, o snapshot.Options) (*snapshot.Result, error) {
	r, err := snapshot.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	report, err := o.Store.VerifyStructure(ctx, r.Envelope, nil)
	if err == nil && len(report.Findings) > 0 {
		err = fmt.Errorf("verify snapshot %s: %w: %s", r.ID, errNotVerified, report.Findings[0].Message)
	}
	return r, err
}
