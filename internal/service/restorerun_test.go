package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// ownedFixture is a restore of one unit into b that has a journal and a store.
type ownedFixture struct {
	*restoreInputs
	catalog *catalog.Catalog
	journal *catalog.Journal
	plan    *restore.Plan
	signing *store.Store
	bucket  *probedBucket
}

// probedBucket is a bucket that is asked first whether it honours conditions, as S3 servers are.
type probedBucket struct {
	*directory.Bucket
	err error // of the question
	// onOwner, when set, is called when an ownership record was written.
	onOwner func()
}

func (b *probedBucket) PutIf(ctx context.Context, key string, data []byte, tag string) (string,
	error) {
	tag, err := b.Bucket.PutIf(ctx, key, data, tag)
	if b.onOwner != nil && strings.HasPrefix(key, "owners/") {
		b.onOwner()
	}
	return tag, err
}

func (b *probedBucket) SupportsConditionalWrites(context.Context) (bool, error) {
	return b.err == nil, b.err
}

// TestI1AStoreThatDoesNotAnswerReleasesNothing: only a store that cannot write records, or keys
// that cannot sign them, are a warning.
func TestI1AStoreThatDoesNotAnswerReleasesNothing(t *testing.T) {
	f := newOwnedFixture(t, true)
	f.bucket.err = errors.New("connection refused")
	if _, err := f.beforeRelease(t.Context(), f.journal, f.plan); !errors.Is(err, f.bucket.err) {
		t.Errorf("a store that does not answer: %v", err)
	}
	f.bucket.err = bucket.ErrUnconditional
	if _, err := f.beforeRelease(t.Context(), f.journal, f.plan); err != nil {
		t.Errorf("a store without conditions: %v", err)
	}
}

var ownedUnit = restore.Unit{Name: "team-a/one", WorkloadID: "workload-1"}

// newOwnedFixture makes the fixture; withKey says whether the restore has a signing key.
func newOwnedFixture(t *testing.T, withKey bool) *ownedFixture {
	t.Helper()
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := store.Keygen(filepath.Join(dir, "keys"), time.Now())
	check(err)
	recipient, err := os.ReadFile(filepath.Join(dir, "keys", "recipient.txt"))
	check(err)
	open := func(withKey bool, b bucket.Bucket) *store.Store {
		o := store.KeyOptions{Recipients: []string{strings.TrimSpace(string(recipient))},
			TrustedKeyFiles: []string{filepath.Join(dir, "keys", "signing.pub")}}
		if withKey {
			o.SigningKeyFile = filepath.Join(dir, "keys", "signing.key")
		}
		keys, err := store.LoadKeys(o)
		check(err)
		s, err := store.Open(t.Context(), store.Options{Keys: keys, Create: true,
			Bucket: b})
		check(err)
		return s
	}
	c, err := catalog.Open(t.Context(), filepath.Join(dir, "c.db"), catalog.Options{})
	check(err)
	t.Cleanup(func() { check(c.Close()) })
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	check(err)
	_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
	check(err)
	b := &probedBucket{Bucket: directory.New(filepath.Join(dir, "store"))}
	signing := open(true, b.Bucket) // it makes the store
	return &ownedFixture{restoreInputs: &restoreInputs{store: open(withKey, b),
		dialer: &dialer{}}, signing: signing,
		bucket:  b,
		catalog: c,
		journal: c.Journal(op.ID, catalog.JournalOptions{}),
		plan: &restore.Plan{Spec: restore.Spec{SourceIsGone: true},
			Snapshot: restore.Snapshot{Source: object.Side{Name: "a", UID: "uid-a"}},
			Target:   object.Side{Name: "b", UID: "uid-b"}, Epochs: map[string]int64{}}}
}

// restoreElsewhere is what another restore does to the record: the unit belongs to c.
func (f *ownedFixture) restoreElsewhere(t *testing.T) {
	t.Helper()
	q := ownership.Request{WorkloadID: ownedUnit.WorkloadID, Workload: ownedUnit.Name,
		From: f.plan.Target, To: object.Side{Name: "c", UID: "uid-c"}, Operation: "0123456789ab"}
	owners, err := ownership.Owners(t.Context(), f.signing)
	if err != nil {
		t.Fatal(err)
	}
	q.Epoch = owners[q.WorkloadID].Highest()
	if err := ownership.Claim(t.Context(), f.signing, q); err != nil {
		t.Fatal(err)
	}
}

// TestI1ResumedRestoreDoesNotReleaseAUnitThatAnotherClaimed: the step of the claim is done in the
// journal, and the record names another management cluster since.
func TestI1ResumedRestoreDoesNotReleaseAUnitThatAnotherClaimed(t *testing.T) {
	for _, withKey := range []bool{true, false} {
		f := newOwnedFixture(t, withKey)
		hook, err := f.beforeRelease(t.Context(), f.journal, f.plan)
		if err != nil {
			t.Fatal(err)
		}
		beforeRelease := func() error { return hook(t.Context(), ownedUnit) }
		for range 2 { // a resume without such a claim goes on
			if err := beforeRelease(); err != nil {
				t.Fatalf("signing key %v: %v", withKey, err)
			}
		}
		f.restoreElsewhere(t)
		err = beforeRelease()
		if owned, ok := errors.AsType[*ownership.OwnedError](err); !ok || owned.By.Name != "c" {
			t.Errorf("signing key %v: %v", withKey, err)
		}
	}
}
