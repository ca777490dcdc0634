package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

var errNotVerified = errors.New("the snapshot is not as it should be in the store")

// snapshotTries is how often a batch takes its snapshot.
const snapshotTries = 3

// takeSnapshot creates the snapshot that a batch is copied from, verifies its structure in the
// store (invariant I2), and adds it to the index. It reads what changed since the snapshot before,
// and returns the objects that units need, so that memory follows the units in flight.
func (m *run) takeSnapshot(ctx context.Context, units []string) (*snapshot.Result,
	*snapshot.Contents, error) {
	o := m.Source.options
	o.Store, o.WithLive, o.Writer, o.Progress = m.Store, true, m.Program, m.Journal.Progress
	o.State, o.Cache = m.Catalog.SnapshotState(m.Store.ID(), o.SourceUID), m.Cache
	var err error
	if o.Known, err = m.Catalog.HighestSequence(ctx, m.Store.ID(), o.SourceUID); err != nil {
		return nil, nil, err
	}
	var r *snapshot.Result
	var contents *snapshot.Contents
	for try := 1; ; try++ {
		r, contents, err = m.createAndFetch(ctx, o, units)
		// What is at work may change after it was captured.
		changed := errors.Is(err, capture.ErrHistory) || errors.Is(err, kube.ErrExpired)
		damaged := errors.Is(err, errNotVerified) && !o.Full // older keys that it reuses may be
		if o.Full = o.Full || damaged; !changed && !damaged || try == snapshotTries {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	err = m.Catalog.UpdateOperation(ctx, m.Journal.Operation(),
		func(op *catalog.Operation) { op.SnapshotID = string(r.ID) })
	if err == nil {
		err = m.Catalog.PutSnapshot(ctx, catalog.RecordOf(r.Signed))
	}
	return r, contents, err
}

// createAndFetch is one try of takeSnapshot. It reads the objects while the store is asked.
func (m *run) createAndFetch(ctx context.Context, o snapshot.Options, units []string) (
	*snapshot.Result, *snapshot.Contents, error) {
	r, err := snapshot.Create(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	m.keepShared(r.Live.Graph)
	nodes, err := restore.Nodes(r.Live, m.Plan.Spec.copySpec(units))
	if err != nil {
		return nil, nil, err
	}
	var contents *snapshot.Contents
	g, ctx := task.WithContext(ctx)
	g.Go(func() error { return verify(ctx, o.Store, r) })
	g.Go(func() (err error) {
		contents, err = r.Fetch(ctx, nodes)
		return err
	})
	return r, contents, g.Wait()
}

// verify verifies the structure of a snapshot in the store. The error wraps errNotVerified when
// that has findings.
func verify(ctx context.Context, st *store.Store, r *snapshot.Result) error {
	report, err := st.VerifyStructure(ctx, r.Envelope, nil)
	if err == nil && len(report.Findings) > 0 {
		err = fmt.Errorf("verify snapshot %s: %w: %s", r.ID, errNotVerified, report.Findings[0].Message)
	}
	return err
}
