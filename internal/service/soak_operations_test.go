package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
)

func (k *soak) take(r *rand.Rand, full bool, namespaces []string) error {
	source := k.sources[r.IntN(len(k.sources))]
	for range r.IntN(3) {
		source.Change()
	}
	st, err := k.open()
	if err != nil {
		return err
	}
	op := catalog.Operation{Kind: catalog.KindSnapshot, Source: catalog.Side{Name: source.Name,
		UID: source.UID}, Store: st.ID()}
	return k.operation(op, func(ctx context.Context, j *catalog.Journal) error {
		o := source.Options(st)
		o.State, o.Full, o.Scope.Namespaces, o.Progress, o.Now = k.c.SnapshotState(st.ID(), source.UID),
			full,
			namespaces, j.Progress, k.clock.Now
		if r.IntN(3) == 0 {
			o.TTL = time.Duration(1+r.IntN(48)) * time.Hour
		}
		result, err := takeSnapshot(ctx, k.c, j, o)
		if err != nil {
			return err
		}
		objects, ok := source.At(result.ResourceVersion)
		if !ok {
			return fmt.Errorf("resourceVersion %s of a snapshot is not known any more",
				result.ResourceVersion)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.taken = append(k.taken, taken{Signed: result.Signed, source: source, objects: objects})
		return nil
	})
}

// pick gives one of the snapshots that are good; false when there is none yet.
func (k *soak) pick(r *rand.Rand) (taken, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.taken) == 0 {
		return taken{}, false
	}
	return k.taken[r.IntN(len(k.taken))], true
}

// verify must not fail a good snapshot without faults; assertExpected checks that.
func (k *soak) verify(r *rand.Rand, level store.VerifyLevel) error {
	of, ok := k.pick(r)
	if !ok {
		return nil
	}
	st, err := k.open()
	if err != nil {
		return err
	}
	e, _, err := findSnapshot(k.t.Context(), st,
		snapshotRef{source: of.source.UID, ref: string(of.ID)})
	if err != nil {
		return k.unlessGone(err, of)
	}
	op := catalog.Operation{Kind: catalog.KindVerify, Source: catalog.Side{Name: of.source.Name,
		UID: of.source.UID}, Store: st.ID(), SnapshotID: string(of.ID)}
	return k.unlessGone(k.operation(op, func(ctx context.Context, j *catalog.Journal) error {
		percent, err := verify.Percent(level, 0)
		if err == nil {
			_, err = runVerify(ctx, j, verify.Options{Store: st, Catalog: k.c, Snapshot: e,
				Untrusted: mayRead(st, e), Level: level, Percent: percent, Writer: "test"})
		}
		return err
	}), of)
}

// list shows only snapshots that are there.
func (k *soak) list(*rand.Rand) error {
	st, err := k.open()
	if err != nil {
		return err
	}
	keys, err := st.Snapshots(k.t.Context(), "")
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if _, err := os.Stat(filepath.Join(k.dir, "store", key.String())); err != nil && !k.pruned.any {
			k.t.Errorf("listed: %v", err)
		}
	}
	return nil
}

// diff is right, or an error.
func (k *soak) diff(r *rand.Rand) error {
	from, ok := k.pick(r)
	if !ok {
		return nil
	}
	to, _ := k.pick(r)
	if from.source != to.source || from.Partial || to.Partial {
		return nil
	}
	st, err := k.open()
	if err != nil {
		return err
	}
	var sides [2]snapshot.Version
	for i, of := range []taken{from, to} {
		if sides[i], err = openVersion(k.t.Context(), st, snapshotRef{source: of.source.UID,
			ref: string(of.ID)}, nil); err != nil {
			return k.unlessGone(err, of)
		}
	}
	list, err := snapshot.Compare(k.t.Context(), sides[0], sides[1])
	if err != nil {
		return k.unlessGone(err, from, to)
	}
	differs := map[object.Ref]bool{}
	for _, d := range list {
		differs[d.Node.Ref] = true
	}
	for ref, body := range to.objects {
		if ref.Kind != kube.NamespaceKind.Kind && bytes.Equal(body, from.objects[ref]) == differs[ref] {
			k.t.Errorf("diff of %s and %s: %s: %v", from.ID, to.ID, ref, differs[ref])
		}
	}
	return nil
}

// read gives the bytes that the source had, or an error.
func (k *soak) read(r *rand.Rand) error {
	of, ok := k.pick(r)
	if !ok {
		return nil
	}
	st, err := k.open()
	if err != nil {
		return err
	}
	return k.unlessGone(compareTaken(k.t, st, of), of)
}

// compareTaken compares all objects of a snapshot with those that its source had.
func compareTaken(t *testing.T, st *store.Store, of taken) error {
	t.Helper()
	s, err := snapshot.Open(t.Context(), st, of.Envelope, nil)
	if err != nil {
		return err
	}
	contents, err := s.Load(t.Context(), s.Graph.Nodes, nil)
	if err != nil {
		return err
	}
	for _, n := range s.Graph.Nodes {
		if body, err := contents.Bytes(n.Ref); err != nil || !bytes.Equal(body, of.objects[n.Ref]) {
			t.Errorf("snapshot %s holds another %s than the source had, %v", of.ID, n.Ref, err)
		}
	}
	for ref := range of.objects {
		if s.Graph.Node(ref) == nil && ref.Kind != kube.NamespaceKind.Kind && !of.Partial {
			t.Errorf("snapshot %s does not hold %s", of.ID, ref)
		}
	}
	return nil
}

// own hands a workload cluster over. What was written is never taken back.
func (k *soak) own(r *rand.Rand) error {
	ctx, id := k.t.Context(), fmt.Sprint("workload-", r.IntN(5))
	st, err := k.open()
	if err != nil {
		return err
	}
	k.mu.Lock()
	least := k.epochs[id]
	k.mu.Unlock()
	next := store.Owner{WorkloadID: id, Workload: "ns/" + id, Owner: store.Source{UID: "m"}, Epoch: 1,
		Operation: fmt.Sprintf("%x", r.Uint64()), Time: time.Now()}
	var previous *store.SignedOwner
	switch o, err := st.GetOwner(ctx, id); {
	case err == nil:
		if err := o.RequireTrusted(); err != nil {
			return err
		}
		previous, next.Epoch = &o, o.Epoch+1
		if o.Epoch < least {
			k.t.Errorf("%s has epoch %d, and %d was written", id, o.Epoch, least)
		}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	if _, err := st.PutOwner(ctx, next, previous); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epochs[id] = max(k.epochs[id], next.Epoch)
	return nil
}

// record writes the record of an operation and reads it back.
func (k *soak) record(r *rand.Rand) error {
	st, err := k.open()
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.records++
	seq := k.records
	k.mu.Unlock()
	text := fmt.Appendf(nil, "record %x", r.Uint64())
	sealed, err := st.SealOperationRecord("soak", seq, store.OperationHead{Time: time.Unix(1e9, 0)},
		text)
	if err != nil {
		return err
	}
	if err := st.PutOperationRecord(k.t.Context(), sealed); err != nil {
		return err
	}
	if _, got, _, err := k.direct.GetOperationRecord(k.t.Context(), sealed.Key); err != nil ||
		!bytes.Equal(got, text) {
		k.t.Errorf("%s: %q, %v", sealed.Key, got, err)
	}
	_, got, _, err := st.GetOperationRecord(k.t.Context(), sealed.Key)
	if err == nil && !bytes.Equal(got, text) {
		k.t.Errorf("%s: read as %q", sealed.Key, got)
	}
	return err
}

func (k *soak) rebuild(*rand.Rand) error {
	_, err := k.s.rebuild(k.t.Context(), k.c, k.at)
	return err
}
