package snapshot_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// operationID is that of snapshots that an operation takes for itself.
const operationID = "move-20260301-070000-ab12"

// leased is a source whose leases are renewed, so that watches may start at the parent. onWatch
// runs before each watch.
type leased struct {
	*snapshottest.Source
	onWatch func()
}

func (l *leased) List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func([]byte) error) (
	kube.ListResult, error) {
	if k.GroupKind != kube.LeaseKind.GroupKind {
		return l.Source.List(ctx, k, o, fn)
	}
	at := o.Exact
	return kube.ListResult{ResourceVersion: at, Items: 1}, fn(fmt.Appendf(nil,
		`{"metadata":{"name":"kube-scheduler","uid":"u","resourceVersion":%q},"spec":{"renewTime":%q}}`,
		at,
		time.Now().UTC().Format(time.RFC3339Nano)))
}

func (l *leased) Changes(ctx context.Context, k kube.Kind, from, to string,
	fn func(bool, []byte) error) error {
	if l.onWatch != nil {
		l.onWatch()
	}
	return l.Source.Changes(ctx, k, from, to, fn)
}

// TestRandomSnapshotsHoldWhatTheSourceHad: each snapshot of a source that changes at random holds
// every object as of its resourceVersion, whether it is listed or watched, with a parent from the
// cache, from the catalog, or with none. After the first snapshot only changes are read.
func TestRandomSnapshotsHoldWhatTheSourceHad(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 5))
	c := newCrashed(t)
	source := &leased{Source: c.source}
	st := c.open(directory.New(c.dir + "/store"))
	db, err := catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	var cache incremental.RunCache
	incrementals := 0
	for round := range 40 {
		for range random.IntN(3) {
			source.Change()
		}
		o := source.Options(st)
		o.Source, o.State = source, db.SnapshotState(st.ID(), source.UID)
		o.ExactLimit = []int{0, -1, -1}[random.IntN(3)]
		o.Cache = []*incremental.RunCache{&cache, &cache, {}, nil}[random.IntN(4)]
		o.Full = random.IntN(10) == 0
		if random.IntN(10) == 0 {
			o.Operation = operationID
		}
		var watches atomic.Int32 // kinds are watched at the same time
		source.onWatch = func() {
			if watches.Add(1) == 3 && round%2 == 0 {
				source.Change()
			}
		}
		taken, err := snapshot.Create(t.Context(), o)
		if err != nil || taken.NotRemembered != nil {
			t.Fatalf("round %d: %v, %v", round, err, taken)
		}
		holdsWhatTheSourceHad(t, st, source.Source, taken)
		if o.ExactLimit < 0 && !o.Full && taken.Read < taken.Counts.Objects/2 {
			incrementals++
		}
		if t.Failed() {
			t.Fatalf("in round %d, with limit %d, full %t, operation %q", round, o.ExactLimit,
				o.Full, o.Operation)
		}
	}
	if incrementals < 10 {
		t.Errorf("only %d of 40 snapshots read only changes", incrementals)
	}
}

// holdsWhatTheSourceHad compares the objects of a snapshot with those of the source as of its
// resourceVersion.
func holdsWhatTheSourceHad(t *testing.T, st *store.Store, source *snapshottest.Source,
	taken *snapshot.Result) {
	t.Helper()
	s, err := snapshot.Open(t.Context(), st, taken.Envelope, nil)
	if err != nil {
		t.Fatal(err)
	}
	contents, err := s.Load(t.Context(), s.Graph.Nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, there := source.At(taken.ResourceVersion)
	if !there || len(s.Graph.Nodes) != len(want) {
		t.Errorf("at %s: %d objects, the source had %d", taken.ResourceVersion, len(s.Graph.Nodes),
			len(want))
	}
	for _, n := range s.Graph.Nodes {
		if body, err := contents.Bytes(n.Ref); err != nil || !bytes.Equal(body, want[n.Ref]) {
			t.Errorf("%s is not what the source had at %s: %v", n.Ref, taken.ResourceVersion, err)
		}
		if taken.Contents != nil {
			if body, err := taken.Contents.Bytes(n.Ref); err != nil || !bytes.Equal(body, want[n.Ref]) {
				t.Errorf("%s in memory is not what the source had: %v", n.Ref, err)
			}
		}
	}
	report, err := st.VerifyStructure(t.Context(), taken.Envelope, nil)
	if err != nil || len(report.Findings) > 0 || report.Bytes != taken.Bytes {
		t.Errorf("verify: %v, %v; %d bytes, the envelope says %d", report.Findings, err, report.Bytes,
			taken.Bytes)
	}
}
