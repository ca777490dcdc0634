package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// TestTheNewestSnapshotThatHasAMachineIsNamed: an older one is chosen, and the newest one has the
// Machine. The newest one itself has no newer one.
func TestTheNewestSnapshotThatHasAMachineIsNamed(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if _, err := store.Keygen(keys, time.Now()); err != nil {
		t.Fatal(err)
	}
	recipient, err := os.ReadFile(filepath.Join(keys, "recipient.txt"))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := store.LoadKeys(store.KeyOptions{
		Recipients:      []string{strings.TrimSpace(string(recipient))},
		IdentityFiles:   []string{filepath.Join(keys, "identity.txt")},
		SigningKeyFile:  filepath.Join(keys, "signing.key"),
		TrustedKeyFiles: []string{filepath.Join(keys, "signing.pub")}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{Keys: loaded, Create: true,
		Bucket: directory.New(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	source := snapshottest.New("prod", 7, 1)
	var taken []*snapshot.Result
	for i := range 2 {
		o := source.Options(st)
		o.Now = func() time.Time { return time.Now().Add(time.Duration(i-2) * time.Hour) }
		r, err := snapshot.Create(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, r)
	}
	newest, err := snapshot.Open(t.Context(), st, taken[1].Envelope, nil)
	if err != nil {
		t.Fatal(err)
	}
	var machine object.Ref
	for _, n := range newest.Graph.Nodes {
		if n.GroupKind() == capi.Machine {
			machine = n.Ref
		}
	}
	older := &restoreInputs{store: st, signed: taken[0].Signed}
	if got := older.newerWith(t.Context())(machine); !strings.HasPrefix(got, string(taken[1].ID)) {
		t.Errorf("%s is in %q, want snapshot %s", machine, got, taken[1].ID)
	}
	unknown := machine
	unknown.Name = "nobody"
	if got := older.newerWith(t.Context())(unknown); got != "" {
		t.Errorf("%s is in %q", unknown, got)
	}
	last := &restoreInputs{store: st, signed: taken[1].Signed}
	if got := last.newerWith(t.Context())(machine); got != "" {
		t.Errorf("%q is newer than the newest", got)
	}
}
