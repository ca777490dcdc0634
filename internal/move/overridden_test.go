package move

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

func sideOf(name string) object.Side { return object.Side{Name: name, UID: "uid-" + name} }

// TestI1APlanAsksTheOwnersThatAreOverridden: neither the sides of the move nor an owner whose
// record counts. Without an answer about them there is no plan.
func TestI1APlanAsksTheOwnersThatAreOverridden(t *testing.T) {
	e := Ends{Source: Mgmt{Side: sideOf("a")}, Target: Mgmt{Side: sideOf("b")}}
	owners := map[string]ownership.Record{}
	for id, by := range map[string]string{"1": "a", "2": "b", "3": "c", "4": "d"} {
		owners[id] = ownership.Record{By: sideOf(by)}
	}
	var asked []object.Side
	answer := map[string]preflight.Overridden{"uid-c": {Owner: sideOf("c")}}
	away := errors.New("the store does not answer")
	var err error
	e.Overridden = func(_ context.Context, records ...ownership.Record) (
		map[string]preflight.Overridden, error) {
		asked = nil
		for _, r := range records {
			asked = append(asked, r.By)
		}
		return answer, err
	}
	for _, err = range []error{nil, away} {
		got, is := e.askOverridden(t.Context(), restore.Input{Owners: owners,
			Spec: restore.Spec{Force: object.Forced{object.CodeOwnedElsewhere: "c"}}})
		if !slices.Equal(asked, []object.Side{sideOf("c")}) || !errors.Is(is, err) || len(got) != 1 {
			t.Errorf("asked %v, got %v, %v", asked, got, is)
		}
	}
	asked = nil
	if got, err := e.askOverridden(t.Context(), restore.Input{Owners: owners}); err != nil ||
		got != nil || asked != nil {
		t.Errorf("without an override: asked %v, got %v, %v", asked, got, err)
	}
}

// TestI1AHandOverAsksAnOverriddenOwner: a batch that was planned days ago is resumed, and the owner
// is back.
func TestI1AHandOverAsksAnOverriddenOwner(t *testing.T) {
	st, _ := newStore(t)
	u := restore.Unit{Name: "n/w", WorkloadID: "w-1"}
	if err := ownership.Claim(t.Context(), st, ownership.Request{WorkloadID: u.WorkloadID,
		Workload: u.Name, To: sideOf("c"), Operation: "0123456789ab"}); err != nil {
		t.Fatal(err)
	}
	seen, trusted := time.Now().Add(-2*time.Hour), true
	m := &run{Plan: &Plan{Source: sideOf("a"), Target: sideOf("b")}}
	m.Store = st
	m.Overridden = func(_ context.Context, records ...ownership.Record) (
		map[string]preflight.Overridden, error) {
		if len(records) != 1 || records[0].By != sideOf("c") || records[0].Trusted != trusted {
			t.Errorf("asked of %+v", records)
		}
		return map[string]preflight.Overridden{"uid-c": {Owner: sideOf("c"), Seen: seen}}, nil
	}
	if err := m.checkOverridden(t.Context(), u); err != nil {
		t.Errorf("without an override: %v", err)
	}
	m.Plan.Spec.Force = object.Forced{object.CodeOwnedElsewhere: "c"}
	if err := m.checkOverridden(t.Context(), u); err != nil {
		t.Errorf("seen two hours ago: %v", err)
	}
	m.Plan.Copy.OwnersSeen = map[string]time.Time{"uid-c": seen.Add(-time.Hour)}
	if err := m.checkOverridden(t.Context(), u); err == nil ||
		!strings.Contains(err.Error(), "came back after this operation was planned") {
		t.Errorf("seen after the plan: %v", err)
	}
	_, m.Journal = newJournal(t, catalog.Options{})
	err := m.handOver(t.Context(), u, &batch{}, newFlight([]string{u.Name}))
	state, stateErr := m.Journal.State(t.Context(), handOverStep(u.Name))
	if err == nil || state != "" || stateErr != nil {
		t.Errorf("the step of the hand-over has begun, with the state %q: %v, %v", state, err, stateErr)
	}
	m.Plan.Copy.Overridden = map[string]object.Side{u.WorkloadID: sideOf("c")}
	if _, err := ownership.ClaimBack(t.Context(), st, ownership.Request{WorkloadID: u.WorkloadID,
		Workload: u.Name, From: sideOf("a"), To: sideOf("b"), Operation: "0123456789ac", Epoch: 1,
		Force: true}); err != nil {
		t.Fatal(err)
	}
	trusted = false // the record of the owner is gone
	if err := m.checkOverridden(t.Context(), u); err == nil ||
		!strings.Contains(err.Error(), "came back after this operation was planned") {
		t.Errorf("seen after the plan, when the record names the source: %v", err)
	}
	m.Plan.Spec.NoFence = true
	if err := m.checkOverridden(t.Context(), u); err != nil {
		t.Errorf("a move without records: %v", err)
	}
}

// newStore makes a store that signs, in a folder.
func newStore(t *testing.T) (st *store.Store, root string) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "store")
	_, err := store.Keygen(filepath.Join(dir, "keys"), time.Now())
	recipient, readErr := os.ReadFile(filepath.Join(dir, "keys", "recipient.txt"))
	if err = errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: []string{strings.TrimSpace(string(recipient))},
		TrustedKeyFiles: []string{filepath.Join(dir, "keys", "signing.pub")},
		SigningKeyFile:  filepath.Join(dir, "keys", "signing.key")})
	if err != nil {
		t.Fatal(err)
	}
	st, err = store.Open(t.Context(), store.Options{Bucket: directory.New(root),
		Keys: keys, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return st, root
}
