package incremental

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// recorded is a state that never changes.
type recorded State

func (r recorded) Load(context.Context, string) (State, error) { return State(r), nil }

func (recorded) Update(context.Context, string, StateDelta) error { return nil }

// newRecordedChain is a chain of one snapshot, which its state records, in a bucket that does not
// give some keys.
func newRecordedChain(t *testing.T) (Chain, store.Signed, *faultbucket.Refusing) {
	t.Helper()
	dir := t.TempDir() + "/keys"
	generated, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: []string{generated.Recipient},
		IdentityFiles: []string{dir + "/identity.txt"}, SigningKeyFile: dir + "/signing.key"})
	if err != nil {
		t.Fatal(err)
	}
	b := faultbucket.NewRefusing(directory.New(t.TempDir() + "/store"))
	st, err := store.Open(t.Context(), store.Options{Bucket: b, Keys: keys, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := st.PutTree(t.Context(), store.Tree{})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := st.PutEnvelope(t.Context(), store.Envelope{ID: store.NewSnapshotID(),
		Time: time.Now(), Source: store.Source{UID: "uid", Name: "prod"}, Sequence: 1, Tree: tree})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := st.ContentIDs([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	made, _, _ := sealTwo(t, ids)
	return Chain{Store: st, Source: "uid", Scope: signed.ScopeID(), State: recorded{
		Secret: []byte("secret"), Snapshot: stateName(signed), Parts: made.parts}}, signed, b
}

// TestAParentThatTheStorageDoesNotGiveStopsNoSnapshot: the next one reads and writes everything, as
// beside a damaged parent. A storage that does not answer takes no snapshot either.
func TestAParentThatTheStorageDoesNotGiveStopsNoSnapshot(t *testing.T) {
	c, _, _ := newRecordedChain(t)
	if p, err := c.LoadParent(t.Context(), false, time.Now()); err != nil || p.Snapshot == nil {
		t.Fatalf("a parent that can be read: %+v, %v", p, err)
	}
	for name, with := range faultbucket.Refusals {
		t.Run(name, func(t *testing.T) {
			c, signed, b := newRecordedChain(t)
			b.Refuse(with, string(signed.Tree))
			p, err := c.LoadParent(t.Context(), false, time.Now())
			if err != nil || p.Snapshot != nil || p.ids == nil {
				t.Errorf("the parent is %+v, %v", p, err)
			}
		})
	}
	for name, with := range faultbucket.Outages {
		t.Run(name, func(t *testing.T) {
			c, signed, b := newRecordedChain(t)
			b.Refuse(with, string(signed.Tree))
			if _, err := c.LoadParent(t.Context(), false, time.Now()); !errors.Is(err, with.Class) {
				t.Errorf("error %v", err)
			}
		})
	}
}
