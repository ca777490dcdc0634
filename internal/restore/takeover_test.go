package restore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// lostHost is a host that is lost at one of its writes to the target, and its catalog with it.
// Nothing of it reaches the target or the store after that.
type lostHost struct {
	*memory
	store  *directory.Bucket
	writes int64 // that it does before it is lost; the last of them without its answer
	// always: its last write reaches the target, and not only each second one.
	always bool
	done   atomic.Int64
	lost   atomic.Bool
}

func (h *lostHost) at(write func() error) error {
	n := h.done.Add(1)
	if h.lost.Load() || n > h.writes+1 {
		return errDied
	}
	if n == h.writes+1 {
		h.lost.Store(true)
		if h.always || n%2 == 0 { // it reaches the target
			_ = write()
		}
		return errDied
	}
	return write()
}

func (h *lostHost) Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	out *unstructured.Unstructured, err error) {
	return out, h.at(func() error {
		out, err = h.memory.Create(ctx, k, obj)
		return err
	})
}

func (h *lostHost) Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	out *unstructured.Unstructured, err error) {
	return out, h.at(func() error {
		out, err = h.memory.Update(ctx, k, obj)
		return err
	})
}

func (h *lostHost) UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	out *unstructured.Unstructured, err error) {
	return out, h.at(func() error {
		out, err = h.memory.UpdateStatus(ctx, k, obj)
		return err
	})
}

// bucketOf is the store as a host reaches it.
type bucketOf struct {
	*directory.Bucket
	host *lostHost
}

func (b bucketOf) Put(ctx context.Context, key string, data []byte) error {
	if b.host.lost.Load() {
		return &bucket.Error{Op: "put", Key: key, Class: bucket.ErrUnreachable, Err: errDied}
	}
	return b.Bucket.Put(ctx, key, data)
}

// on lets a trial go on with the catalog and the writer of a host, and returns its mirror.
func (x *trial) on(t *testing.T, c *catalog.Catalog, b bucket.Bucket) *mirror.Mirror {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{Bucket: b, Plain: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	x.catalog = c
	if x.id == "" {
		x.plan = x.makePlan(t)
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
		if err != nil {
			t.Fatal(err)
		}
		x.id = op.ID
	} else if _, err := mirror.Import(t.Context(), c, st, "", x.id); err != nil {
		t.Fatal(err)
	}
	m, err := mirror.Begin(t.Context(), x.id, mirror.Options{Catalog: c, Store: st, Host: c.Path(),
		Lost: func(*mirror.FencedError) {}, Unable: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetState(t.Context(), x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	return m
}

func (x *trial) options(w Writer, m *mirror.Mirror) RunOptions {
	return RunOptions{Plan: x.plan, Contents: x.contents, Reader: x.target, Writer: w,
		Prober: x.target, Kinds: x.target.kinds, Operation: string(x.id),
		Journal: x.catalog.Journal(x.id, m.Journal()), Tuning: x.tuning}
}

// TestRestoreOfALostHostIsFinishedOrUndoneElsewhere: the host is lost at each of its writes, and
// its catalog with it. Another host has the mirror only. It finishes the restore, or, while nothing
// is released, undoes it. Machines lose their mark with their last write, so that the mirror alone
// knows them.
func TestRestoreOfALostHostIsFinishedOrUndoneElsewhere(t *testing.T) {
	for _, undo := range []bool{false, true} {
		for writes := int64(0); ; writes++ {
			x, before := lostTrial(t, undo)
			catalogOfFirst := x.catalog
			host := &lostHost{memory: x.target, writes: writes, store: directory.New(t.TempDir())}
			first := x.on(t, x.catalog, bucketOf{host.store, host})
			err := Run(t.Context(), x.options(host, first))
			if !host.lost.Load() {
				if err != nil {
					t.Fatal(err)
				}
				if writes < 5 {
					t.Errorf("a restore has %d writes", writes)
				}
				break
			}
			x.load(t)
			name := fmt.Sprintf("lost at write %d, undo %v", writes, undo)
			other, err := catalog.Open(t.Context(), t.TempDir()+"/catalog.db", catalog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m := x.on(t, other, host.store)
			if undo {
				err = Undo(t.Context(), UndoOptions{RunOptions: x.options(x.target, m),
					Remover: &mortal{memory: x.target, writes: -1}, Lister: x.target,
					Units: []string{"one/w", "two/w"}, Shared: true})
				if diff := cmp.Diff(before, left(x.target)); diff != "" {
					t.Errorf("%s: left on the target (-want +got):\n%s", name, diff)
				}
			} else {
				err = Run(t.Context(), x.options(x.target, m))
				if got := x.released(t); got != "one/w two/w" {
					t.Errorf("%s: released %q", name, got)
				}
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// The first host wakes up. Whatever it does, its next dangerous step does not begin.
			host.lost.Store(false)
			if err := first.Confirm(t.Context()); !isFenced(err) {
				t.Errorf("%s: the first host goes on: %v", name, err)
			}
			if err := errors.Join(m.Close(t.Context()), first.Close(t.Context()),
				other.Close()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			x.catalog = catalogOfFirst
		}
	}
}

func isFenced(err error) bool {
	_, ok := errors.AsType[*mirror.FencedError](err)
	return ok
}

// lostTrial is a restore of two workload clusters, and what the target has before it.
func lostTrial(t *testing.T, noRelease bool) (x *trial, before []string) {
	t.Helper()
	machine := func(ns string) string {
		return fmt.Sprintf(`{"kind":"Machine","metadata":{"namespace":%q,"name":"m",
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"Cluster",
				"name":"w"}],
			"managedFields":[{"manager":"kubectl","operation":"Apply","apiVersion":"v1",
				"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:clusterName":{}}}}]},
			"spec":{"clusterName":"w"}}`, ns)
	}
	x = newTrial(t, twoTenantsOwning(t, machine("one"), machine("two")), newMemory(t, "target",
		`{"kind":"Namespace","metadata":{"name":"one","labels":{"team":"one"}}}`,
		`{"kind":"ConfigMap","metadata":{"namespace":"one","name":"theirs"}}`))
	x.spec.NoRelease = noRelease
	return x, left(x.target)
}
