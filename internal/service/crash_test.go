package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// crashFixture is a store and a catalog in a folder that can be copied, and a source.
type crashFixture struct {
	t      *testing.T
	dir    string
	keys   string
	source *snapshottest.Source
}

// crashDaemon is a daemon in a copy of the folder, which dies at a chosen call or commit.
type crashDaemon struct {
	*Server
	t       *testing.T
	fixture *crashFixture
	dir     string
	mortal  *faultbucket.Mortal
}

func newCrashFixture(t *testing.T) *crashFixture {
	t.Helper()
	y := &crashFixture{t: t, dir: t.TempDir(), keys: t.TempDir() + "/keys",
		source: snapshottest.New("prod", 11, 2)}
	if _, err := store.Keygen(y.keys, time.Now()); err != nil {
		t.Fatal(err)
	}
	l := y.start(y.dir)
	for range 4 {
		if err := l.take(); err != nil {
			t.Fatal(err)
		}
		y.source.Change()
	}
	l.end()
	old := time.Now().Add(-24 * time.Hour)
	err := filepath.WalkDir(y.dir+"/store", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// copied gives a copy of the folder, with the times of its files.
func (y *crashFixture) copied() string {
	y.t.Helper()
	dir := y.t.TempDir()
	err := filepath.WalkDir(y.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := dir + path[len(y.dir):]
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err == nil {
			err = os.Chtimes(to, info.ModTime(), info.ModTime())
		}
		return err
	})
	if err != nil {
		y.t.Fatal(err)
	}
	return dir
}

// start begins a daemon, as the one does that comes after one that died: it opens the catalog and
// gives what was left running a state.
func (y *crashFixture) start(dir string) *crashDaemon {
	y.t.Helper()
	recipient, err := os.ReadFile(filepath.Join(y.keys, store.RecipientFile))
	if err != nil {
		y.t.Fatal(err)
	}
	l := &crashDaemon{t: y.t, fixture: y, dir: dir, mortal: faultbucket.NewMortal(directory.New(dir +
		"/store"))}
	l.Server = New(Config{
		CatalogFile: dir + "/catalog.db", Daemon: true, Log: slog.New(slog.DiscardHandler),
		Retention: Retention{Policy: retention.Policy{Last: 2}},
		Locations: []Location{{Name: "main", Store: StoreOptions{
			URL: dir + "/store", Recipients: []string{string(recipient)},
			SigningKeyFile:  filepath.Join(y.keys, store.SigningFile),
			TrustedKeyFiles: []string{filepath.Join(y.keys, store.SigningPubFile)},
		}}},
	})
	l.runs.recordPause = 0 // the catalog never takes a record again
	l.buckets["main"] = l.mortal
	if err := os.MkdirAll(dir+"/store", 0o700); err != nil {
		y.t.Fatal(err)
	}
	c, err := catalog.Open(y.t.Context(), l.cfg.CatalogFile, catalog.Options{Commit: l.mortal.Commit})
	if err != nil {
		y.t.Fatalf("the catalog does not open: %v", err)
	}
	left, err := c.Interrupted(y.t.Context())
	for _, op := range left {
		err = errors.Join(err, l.classifyInterrupted(y.t.Context(), c, op))
	}
	if err != nil {
		y.t.Fatal(err)
	}
	if problems := c.Check(y.t.Context()); len(problems) > 0 {
		y.t.Errorf("the catalog is not sound: %v", problems)
	}
	l.catalog = c
	return l
}

func (l *crashDaemon) end() {
	l.t.Helper()
	if err := l.Close(); err != nil {
		l.t.Error(err)
	}
}

// ran gives how an operation ended, by what the catalog says of the last one, or by the error that
// ended the daemon.
func (l *crashDaemon) ran(err error) error {
	l.running.Wait()
	if err != nil {
		return err
	}
	select {
	case err := <-l.Failed():
		return err
	default:
	}
	ops, err := l.catalog.Operations(l.t.Context(), catalog.OperationFilter{Limit: 1})
	if err == nil && (len(ops) != 1 || ops[0].State != catalog.Succeeded) {
		err = fmt.Errorf("operation %+v", ops)
	}
	return err
}

func (l *crashDaemon) take() error {
	ctx, y := l.t.Context(), l.fixture
	st, err := l.openLocation(ctx, &l.cfg.Locations[0], nil, true)
	if err != nil {
		return err
	}
	op, err := l.catalog.CreateOperation(ctx, catalog.Operation{Kind: catalog.KindSnapshot,
		Source: catalog.Side{Name: y.source.Name, UID: y.source.UID}, Store: st.ID(), Location: "main"})
	if err != nil {
		return err
	}
	var result *snapshot.Result
	_, err = l.start(l.Server.ctx, l.catalog, op.ID, func(ctx context.Context, j *catalog.Journal) (
		err error) {
		o := y.source.Options(st)
		o.State = l.catalog.SnapshotState(st.ID(), y.source.UID)
		result, err = takeSnapshot(ctx, l.catalog, j, o)
		return err
	})
	err = l.ran(err)
	if err == nil && result.NotRemembered != nil {
		err = result.NotRemembered
	}
	return err
}

func (l *crashDaemon) prune() error {
	_, err := (&pruneService{s: l.Server}).RunPrune(l.t.Context(),
		&mgmtv1.RunPruneRequest{Spec: &mgmtv1.PruneSpec{Location: "main"}})
	return l.ran(err)
}

// remove deletes the oldest snapshot; a daemon before this one may have done so.
func (l *crashDaemon) remove() error {
	keys := l.stored()
	if len(keys) < 4 {
		return l.prune()
	}
	_, err := (&snapshotService{s: l.Server}).DeleteSnapshots(l.t.Context(),
		&mgmtv1.DeleteSnapshotsRequest{Location: "main", Ids: []string{string(keys[0].ID)}})
	return l.ran(err)
}

func (l *crashDaemon) verify() error {
	_, err := l.beginVerify(l.t.Context(), verifyRequest{location: "main",
		of:    snapshotRef{ref: latest},
		level: store.LevelStructure})
	return l.ran(err)
}

func (l *crashDaemon) rebuildAll() error {
	_, err := (&catalogService{s: l.Server}).RebuildCatalog(l.t.Context(),
		&mgmtv1.RebuildCatalogRequest{})
	return err
}

// direct opens the store without faults.
func (l *crashDaemon) direct() *store.Store {
	l.t.Helper()
	o := l.cfg.Locations[0].Store
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: o.Recipients,
		TrustedKeyFiles: o.TrustedKeyFiles})
	if err != nil {
		l.t.Fatal(err)
	}
	st, err := store.Open(l.t.Context(), store.Options{Bucket: directory.New(l.dir + "/store"),
		Keys: keys})
	if err != nil {
		l.t.Fatal(err)
	}
	return st
}

func (l *crashDaemon) stored() []store.EnvelopeKey {
	l.t.Helper()
	keys, err := l.direct().Snapshots(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	return keys
}

// whole fails unless every snapshot in the store verifies.
func (l *crashDaemon) whole(when string) {
	l.t.Helper()
	st := l.direct()
	for _, k := range l.stored() {
		e, err := st.GetEnvelope(l.t.Context(), k)
		if err != nil || e.Trust != store.Trusted {
			l.t.Errorf("%s: %s: %v, %v", when, k, e.Trust, err)
			continue
		}
		if r, err := st.VerifyStructure(l.t.Context(), e.Envelope, nil); err != nil ||
			len(r.Findings) > 0 {
			l.t.Errorf("%s: %s: %v, %v", when, k, r.Findings, err)
		}
	}
}

// index gives the keys that the catalog knows, sorted as the store lists them.
func (l *crashDaemon) index() (keys []string) {
	l.t.Helper()
	records, err := l.catalog.Snapshots(l.t.Context(), catalog.SnapshotFilter{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range records {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	return keys
}

// long reports whether tests run whole, as in make test-long.
var long = os.Getenv("MGMTD_TEST_STATES") != ""

// TestEveryCallMayBeTheLast: whichever commit of the catalog, or call of the storage, is the last
// of a snapshot, a prune, a deletion, a verify or a rebuild, the next daemon opens the catalog, all
// that is in the store is whole, the same and a snapshot can be done, and the index comes to be
// what the store holds. Every twelfth call, and all of them with MGMTD_TEST_STATES.
func TestEveryCallMayBeTheLast(t *testing.T) {
	y := newCrashFixture(t)
	step := 12 // calls: there are many
	if long {
		step = 1
	}
	for _, o := range []struct {
		name    string
		run     func(*crashDaemon) error
		commits int // there are at least
	}{
		{"snapshot", (*crashDaemon).take, 6},
		{"prune", (*crashDaemon).prune, 8},
		{"delete", (*crashDaemon).remove, 8},
		{"verify", (*crashDaemon).verify, 4},
		{"rebuild", (*crashDaemon).rebuildAll, 1},
	} {
		t.Run(o.name, func(t *testing.T) {
			l := y.start(y.copied())
			l.mortal.DieAt(0, false)
			if err := o.run(l); err != nil {
				t.Fatal(err)
			}
			l.end()
			if n := l.mortal.Commits(); n < o.commits {
				t.Fatalf("it made %d commits, at least %d were known", n, o.commits)
			}
			for at := 1; at <= l.mortal.Commits(); at++ {
				y.die(o.run, fmt.Sprint("commit ", at), func(m *faultbucket.Mortal,
					after bool) {
					m.DieAtCommit(at, after)
				})
			}
			for at := 1; at <= l.mortal.Calls(); at += step {
				y.die(o.run, fmt.Sprint("call ", at), func(m *faultbucket.Mortal, after bool) {
					m.DieAt(at,
						after)
				})
			}
		})
	}
}

// die kills a daemon at a point, before and after, and checks what the next daemon finds.
func (y *crashFixture) die(run func(*crashDaemon) error, at string, arm func(m *faultbucket.Mortal,
	after bool)) {
	y.t.Helper()
	for _, after := range []bool{false, true} {
		when := fmt.Sprintf("death at %s (after: %v)", at, after)
		dir := y.copied()
		l := y.start(dir)
		arm(l.mortal, after)
		if err := run(l); !errors.Is(err, faultbucket.ErrDied) {
			y.t.Errorf("%s: %v, want a death", when, err)
		}
		_ = l.Close() // it is dead; only its lock has to go
		next := y.start(dir)
		next.whole(when)
		if err := run(next); err != nil {
			y.t.Errorf("%s: the next run: %v", when, err)
		}
		next.whole(when + " and the next run")
		before := len(next.stored())
		if err := next.take(); err != nil || len(next.stored()) != before+1 {
			y.t.Errorf("%s: the next snapshot: %v", when, err)
		}
		if err := next.prune(); err != nil {
			y.t.Errorf("%s: the next prune: %v", when, err)
		}
		next.whole(when + " and all that came later")
		next.agrees(when)
		next.end()
	}
}

// agrees compares the index with the store. A snapshot whose daemon died before it was in the index
// is missing there until a rebuild; one that is not there must not be in it.
func (l *crashDaemon) agrees(when string) {
	l.t.Helper()
	var keys []string
	for _, k := range l.stored() {
		keys = append(keys, k.String())
	}
	for _, k := range l.index() {
		if !slices.Contains(keys, k) {
			l.t.Errorf("%s: the catalog knows %s, which is not there", when, k)
		}
	}
	if missing := len(keys) - len(l.index()); missing > 1 {
		l.t.Errorf("%s: the catalog does not know %d snapshots", when, missing)
	}
	if err := l.rebuildAll(); err != nil {
		l.t.Errorf("%s: rebuild: %v", when, err)
	}
	if diff := cmp.Diff(keys, l.index()); diff != "" {
		l.t.Errorf("%s: rebuilt (-store +catalog):\n%s", when, diff)
	}
	if ops, err := l.catalog.Operations(l.t.Context(),
		catalog.OperationFilter{States: []catalog.State{catalog.Running}}); err != nil || len(ops) > 0 {
		l.t.Errorf("%s: operations that nobody works on: %v, %v", when, ops, err)
	}
}
