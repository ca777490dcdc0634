package service

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// copied adds the location "copy", a copy of the store of a fixture, and fills it.
func (b *pruneFixture) copied() *store.Store {
	b.t.Helper()
	root := filepath.Join(b.t.TempDir(), "copy")
	b.cfg.Locations[0].Default = true
	b.cfg.Locations = append(b.cfg.Locations, Location{Name: "copy",
		Store: StoreOptions{URL: root, Plain: true}})
	run, err := b.beginCopy(b.t.Context(), copyRequest{to: "copy"})
	if err == nil {
		err = run.Wait()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	st, err := store.Open(b.t.Context(), store.Options{Bucket: directory.New(root), Plain: true})
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// TestI1ARestoreFromACopyIsRefusedUnlessOverridden: the copy does not have the ownership records.
// The plan says so, and so do a release and a rollback, whatever the plan said when it was made.
func TestI1ARestoreFromACopyIsRefusedUnlessOverridden(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(1)
	copied := b.copied()
	if found, err := ofCopy(t.Context(), b.st); err != nil || len(found) > 0 {
		t.Errorf("of a store that is no copy: %v, %v", found, err)
	}
	found, err := ofCopy(t.Context(), copied)
	if err != nil || len(found) != 1 || found[0].Severity != object.Error ||
		found[0].Code != object.CodeOwnershipFromCopy {
		t.Errorf("of a copy: %v", found)
	}
	for name, tt := range map[string]struct {
		st      *store.Store
		spec    restore.Spec
		refused bool
		home    bool
	}{
		"the origin": {st: b.st, home: true},
		"the copy":   {st: copied, refused: true},
		"the copy, without release": {st: copied,
			spec: restore.Spec{NoRelease: true}},
		"the copy, overridden": {st: copied, home: true,
			spec: restore.Spec{Force: object.Forced{object.CodeOwnershipFromCopy: ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			same := object.Side{UID: "u"} // no source to dial
			plan := restore.Plan{Spec: tt.spec, Target: same, Snapshot: restore.Snapshot{Source: same}}
			guard := &sourceGuard{o: &restoreInputs{store: tt.st}, plan: &plan}
			u := &restoreUndo{stored: storedRestore{Plan: plan}}
			for what, err := range map[string]error{"release": guard.check(t.Context()),
				"rollback": b.openUndo(t.Context(), u, catalog.Operation{Store: tt.st.ID()})} {
				refused := err != nil && strings.Contains(err.Error(),
					string(object.CodeOwnershipFromCopy))
				if refused != tt.refused || !refused && err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if tt.refused {
				return
			}
			if can := u.store.CanFence(t.Context()) == nil; can != tt.home {
				t.Errorf("ownership can be recorded: %v, want %v", can, tt.home)
			}
		})
	}
}

// TestACopyHasAnIndexOfItsOwn: the snapshots of a copy are not taken for those of its origin.
func TestACopyHasAnIndexOfItsOwn(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(2)
	copied := b.copied()
	service := &catalogService{s: b.Server}
	resp, err := service.RebuildCatalog(t.Context(), &mgmtv1.RebuildCatalogRequest{})
	if err != nil || len(resp.GetLocations()) != 2 {
		t.Fatalf("%v, %v", resp, err)
	}
	c, err := b.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []*store.Store{b.st, copied} {
		list, err := c.Snapshots(t.Context(), catalog.SnapshotFilter{StoreID: st.ID()})
		if err != nil || len(list) != 2 {
			t.Errorf("store %s has %d snapshots in the index, %v", st, len(list), err)
		}
	}
	// One that goes from the copy is missed there, and not in the origin.
	if err := copied.RemoveSnapshot(t.Context(), b.keys[1]); err != nil {
		t.Fatal(err)
	}
	for st, want := range map[*store.Store]int{b.st: 0, copied: 1} {
		known, err := readKnown(t.Context(), c, st, "uid")
		if err != nil || len(known.missing) != want {
			t.Errorf("store %s misses %d snapshots, want %d; %v", st, len(known.missing), want, err)
		}
	}
}

// TestAnotherHostTakesOverARestoreFromACopy: its journal is mirrored in the copy, once an operator
// has answered for the ownership there. Without that it is not. To forget it ends the mirror.
func TestAnotherHostTakesOverARestoreFromACopy(t *testing.T) {
	m := newMirroredHosts(t)
	_, _, origin := m.host()
	m.location.Store.URL = "file://" + filepath.Join(t.TempDir(), "copy")
	s := New(Config{Locations: []Location{m.location}})
	b, err := s.bucket(&m.location)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{SigningKeyFile: m.location.Store.SigningKeyFile})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenCopy(t.Context(), store.Options{Bucket: b, Keys: keys},
		origin); err != nil {
		t.Fatal(err)
	}
	first, c, copied := m.host()
	fail := func(ctx context.Context, j *catalog.Journal) error {
		return errors.Join(doStep(ctx, j, "own"), errors.New("broken"))
	}
	begin := func(s *Server, c *catalog.Catalog, id catalog.OperationID, st *store.Store) {
		t.Helper()
		run, err := s.startMirrored(t.Context(), c, id, mirrorTo{store: st}, fail)
		if err != nil || run.Wait() == nil {
			t.Fatal("the run did not fail", err)
		}
	}
	mirrored := func() map[string]store.SnapshotID {
		t.Helper()
		used, err := mirror.InUse(t.Context(), copied)
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	create := func() catalog.Operation {
		t.Helper()
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore,
			Store: copied.ID(), SnapshotID: "1a2b3c4d5e6f"})
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	begin(first, c, create().ID, copied)
	if used := mirrored(); len(used) > 0 {
		t.Errorf("without the word of the operator there is a mirror: %v", used)
	}
	home := ownershipHome(copied, object.Forced{object.CodeOwnershipFromCopy: ""})
	op := create()
	begin(first, c, op.ID, home)
	if used := mirrored(); len(used) != 1 {
		t.Fatalf("mirrors %v", used)
	}
	second, other, _ := m.host()
	taken, err := second.currentOperation(t.Context(), other, string(op.ID), m.identity)
	if err != nil || taken.Store != copied.ID() || taken.SnapshotID != op.SnapshotID {
		t.Fatalf("imported %+v, %v", taken, err)
	}
	fail = func(ctx context.Context, j *catalog.Journal) error {
		return errors.Join(doStep(ctx, j, "release"), errors.New("broken"))
	}
	begin(second, other, op.ID, home)
	if _, err := first.currentOperation(t.Context(), c, string(op.ID), nil); ExitCode(
		err) != ExitHeld {
		t.Errorf("the first host: %v", err)
	}
	wantForget(t, second, []string{"work-left"}, nil, true, op.ID)
	if used := mirrored(); len(used) > 0 {
		t.Errorf("after it is forgotten: %v", used)
	}
}
