package service

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// benchSnapshots is how many snapshots a store of the benchmarks has: those of a year, one an hour.
const benchSnapshots = 10_000

// fillStore puts signed envelopes into a store, all of the tree of one snapshot.
func fillStore(ctx context.Context, st *store.Store, e store.Envelope, n int) error {
	g, gctx := task.WithContext(ctx)
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error {
			e := e
			e.Sequence = int64(i + 2)
			e.ID = store.SnapshotID(fmt.Sprintf("%012x", i+1))
			e.Time = e.Time.Add(time.Duration(i+1) * time.Second)
			_, err := st.PutEnvelope(gctx, e)
			return err
		})
	}
	return g.Wait()
}

func BenchmarkListSnapshots(b *testing.B) { benchmarkList(b, newLooker(b)) }

func benchmarkList(b *testing.B, l *looker) {
	b.Helper()
	e := l.take(nil)
	if err := fillStore(b.Context(), l.st, e.Envelope, benchSnapshots-1); err != nil {
		b.Fatal(err)
	}
	list := func(b *testing.B, req *mgmtv1.ListSnapshotsRequest, want int) {
		resp, err := l.service.ListSnapshots(b.Context(), req)
		if err != nil || len(resp.GetSnapshots()) != want {
			b.Fatal(len(resp.GetSnapshots()), err)
		}
	}
	b.Run("newest100", func(b *testing.B) {
		for b.Loop() {
			l.service.s.envelopes = &store.EnvelopeCache{}
			list(b, &mgmtv1.ListSnapshotsRequest{PageSize: 100}, 100)
		}
	})
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			l.service.s.envelopes = &store.EnvelopeCache{}
			list(b, &mgmtv1.ListSnapshotsRequest{}, benchSnapshots)
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			list(b, &mgmtv1.ListSnapshotsRequest{}, benchSnapshots)
		}
	})
}
