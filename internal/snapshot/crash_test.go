package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// crashingState is a state store whose process dies in Update: with after, once it has updated.
type crashingState struct {
	incremental.StateStore
	dies, after bool
}

func (f crashingState) Update(ctx context.Context, scope string,
	change incremental.StateDelta) error {
	if f.dies && !f.after {
		return faultbucket.ErrDied
	}
	if err := f.StateStore.Update(ctx, scope, change); err != nil || !f.dies {
		return err
	}
	return faultbucket.ErrDied
}

// crashed is a store and a catalog after two snapshots, in a folder that can be copied.
type crashed struct {
	t      *testing.T
	source *snapshottest.Source
	keys   *store.Keys
	dir    string
}

func newCrashed(t *testing.T) *crashed {
	t.Helper()
	c := &crashed{t: t, source: snapshottest.New("prod", 11, 4), dir: t.TempDir()}
	keys := t.TempDir() + "/keys"
	generated, err := store.Keygen(keys, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.keys, err = store.LoadKeys(store.KeyOptions{
		Recipients: []string{generated.Recipient}, IdentityFiles: []string{keys + "/identity.txt"},
		SigningKeyFile: keys + "/signing.key", TrustedKeyFiles: []string{keys + "/signing.pub"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.dir+"/store", 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.take(c.dir, faultbucket.NewMortal(directory.New(c.dir+"/store")),
			crashingState{}); err != nil {
			t.Fatal(err)
		}
		c.source.Change()
	}
	return c
}

func (c *crashed) open(b bucket.Bucket) *store.Store {
	c.t.Helper()
	st, err := store.Open(c.t.Context(), store.Options{Bucket: b, Keys: c.keys, Create: true})
	if err != nil {
		c.t.Fatal(err)
	}
	return st
}

// take creates a snapshot in a bucket that dies as die configures it.
func (c *crashed) take(dir string, b *faultbucket.Mortal, how crashingState, die ...func()) (
	*snapshot.Result, error) {
	c.t.Helper()
	db, err := catalog.Open(c.t.Context(), filepath.Join(dir, "catalog.db"), catalog.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			c.t.Error(err)
		}
	}()
	o := c.source.Options(c.open(b))
	how.StateStore = db.SnapshotState(o.Store.ID(), c.source.UID)
	o.State = how
	for _, f := range die {
		f()
	}
	return snapshot.Create(c.t.Context(), o)
}

func (c *crashed) copied() string {
	c.t.Helper()
	dir := c.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(c.dir)); err != nil {
		c.t.Fatal(err)
	}
	return dir
}

// whole checks every snapshot that is there: all keys, all objects, and that these are what the
// source had then.
func (c *crashed) whole(dir string) (n int) {
	c.t.Helper()
	st := c.open(directory.New(dir + "/store"))
	keys, err := st.Snapshots(c.t.Context(), "")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, key := range keys {
		e, err := st.GetEnvelope(c.t.Context(), key)
		if err != nil {
			c.t.Fatal(err)
		}
		report, err := st.VerifyStructure(c.t.Context(), e.Envelope, nil)
		if err != nil || len(report.Findings) > 0 || report.Bytes != e.Bytes {
			c.t.Fatalf("%s: %v, %v; %d bytes, the envelope says %d", key, report.Findings, err, report.Bytes,
				e.Bytes)
		}
		s, err := snapshot.Open(c.t.Context(), st, e.Envelope, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		contents, err := s.Load(c.t.Context(), s.Graph.Nodes, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		want, there := c.source.At(e.ResourceVersion)
		if !there {
			c.t.Fatalf("%s: resourceVersion %s is not known", key, e.ResourceVersion)
		}
		if len(s.Graph.Nodes) != len(want) {
			c.t.Errorf("%s has %d objects, the source had %d", key, len(s.Graph.Nodes), len(want))
		}
		for _, node := range s.Graph.Nodes {
			if body, err := contents.Bytes(node.Ref); err != nil || !bytes.Equal(body, want[node.Ref]) {
				c.t.Errorf("%s: %s is not what the source had: %v", key, node.Ref, err)
			}
		}
	}
	return len(keys)
}

// TestSnapshotSurvivesACrashAtEveryCall: whichever call of the storage or of the catalog is the
// last one of a snapshot, all that are there are whole, and the next one is taken, with what the
// catalog says then.
func TestSnapshotSurvivesACrashAtEveryCall(t *testing.T) {
	c := newCrashed(t)
	m := faultbucket.NewMortal(directory.New(c.copied() + "/store"))
	if _, err := c.take(filepath.Dir(m.String()), m, crashingState{},
		func() { m.DieAt(0, false) }); err != nil {
		t.Fatal(err)
	}
	calls := m.Calls()
	if calls < 12 {
		t.Fatalf("only %d calls", calls)
	}
	crash := func(how string, take func(dir string) error) {
		dir := c.copied()
		if err := take(dir); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		before := c.whole(dir)
		next, err := c.take(dir, faultbucket.NewMortal(directory.New(dir+"/store")), crashingState{})
		if err != nil || next.NotRemembered != nil {
			t.Fatalf("%s: the next snapshot: %v, %v", how, err, next)
		}
		if n := c.whole(dir); n != before+1 {
			t.Errorf("%s: %d snapshots, %d before the next one", how, n, before)
		}
	}
	for at := 1; at <= calls; at++ {
		for _, after := range []bool{false, true} {
			crash("call "+string(rune('0'+at/10))+string(rune('0'+at%10)), func(dir string) error {
				m := faultbucket.NewMortal(directory.New(dir + "/store"))
				if _, err := c.take(dir, m, crashingState{}, func() { m.DieAt(at, after) }); !errors.Is(err,
					faultbucket.ErrDied) {
					return errors.Join(errors.New("it did not die"), err)
				}
				return nil
			})
		}
	}
	for _, after := range []bool{false, true} {
		crash("catalog", func(dir string) error {
			r, err := c.take(dir, faultbucket.NewMortal(directory.New(dir+"/store")),
				crashingState{dies: true, after: after})
			if err == nil && !errors.Is(r.NotRemembered, faultbucket.ErrDied) {
				err = errors.New("it did not die")
			}
			return err
		})
	}
}

// TestVerifySurvivesACrashAtEveryCall: a verify that dies leaves a whole result or none, and the
// next one records its own.
func TestVerifySurvivesACrashAtEveryCall(t *testing.T) {
	c := newCrashed(t)
	verify := func(b bucket.Bucket) error {
		st, err := store.Open(t.Context(), store.Options{Bucket: b, Keys: c.keys})
		if err != nil {
			return err
		}
		e, _, err := st.Newest(t.Context(), c.source.UID, store.Which{})
		if err != nil {
			return err
		}
		report, err := st.VerifyStructure(t.Context(), e.Envelope, nil)
		if err != nil {
			return err
		}
		if len(report.Findings) > 0 {
			// What nobody hears is no answer about a key.
			return errors.Join(faultbucket.ErrDied, errors.New(report.Findings[0].Message))
		}
		_, err = st.PutVerification(t.Context(), *e, store.Verification{Level: store.LevelStructure,
			Time:    time.Now(),
			Outcome: store.OutcomeOK, Keys: int64(report.Keys), Bytes: report.Bytes, Writer: "test"})
		return err
	}
	m := faultbucket.NewMortal(directory.New(c.copied() + "/store"))
	if err := verify(m); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= m.Calls(); at++ {
		for _, after := range []bool{false, true} {
			dir := c.copied()
			m := faultbucket.NewMortal(directory.New(dir + "/store"))
			m.DieAt(at, after)
			if err := verify(m); !errors.Is(err, faultbucket.ErrDied) {
				t.Fatalf("call %d: %v", at, err)
			}
			if err := verify(directory.New(dir + "/store")); err != nil {
				t.Fatalf("after a crash at call %d: %v", at, err)
			}
			st := c.open(directory.New(dir + "/store"))
			if e, check, err := st.Verified(t.Context(), c.source.UID); err != nil ||
				check.Outcome != store.OutcomeOK || e.Sequence != 2 {
				t.Fatalf("after a crash at call %d: %v, %+v", at, err, check)
			}
			c.whole(dir)
		}
	}
}

// late is a bucket that takes three hours to write an envelope.
type late struct {
	bucket.Bucket
	now time.Time
}

func (l *late) Put(ctx context.Context, key string, data []byte) error {
	if strings.HasPrefix(key, "snapshots/") {
		l.now = l.now.Add(3 * time.Hour)
	}
	return l.Bucket.Put(ctx, key, data)
}

// TestSnapshotThatIsLateEachTimeReturnsErrTooLong, and no error about a parent that it never had.
func TestSnapshotThatIsLateEachTimeReturnsErrTooLong(t *testing.T) {
	c := newCrashed(t)
	b := &late{Bucket: directory.New(c.dir + "/store"), now: time.Now()}
	o := c.source.Options(c.open(b))
	o.Now = func() time.Time { return b.now }
	if _, err := snapshot.Create(t.Context(), o); !errors.Is(err, snapshot.ErrTooLong) {
		t.Errorf("error %v, want ErrTooLong", err)
	}
	c.whole(c.dir)
}

// spoiling is a bucket in which somebody overwrites the other envelopes once one is stored.
type spoiling struct {
	bucket.Bucket
	dir string
}

func (s *spoiling) Put(ctx context.Context, key string, data []byte) error {
	err := s.Bucket.Put(ctx, key, data)
	if err != nil || !strings.HasPrefix(key, "snapshots/") {
		return err
	}
	old, err := filepath.Glob(s.dir + "/snapshots/*/*.json")
	if err != nil {
		return err
	}
	for _, file := range old {
		if strings.HasSuffix(file, filepath.Base(key)) {
			continue
		}
		if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte("{}"), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// TestASnapshotWhoseParentIsOverwrittenMeanwhileIsTaken: its envelope is stored, so an error would
// say what is not so.
func TestASnapshotWhoseParentIsOverwrittenMeanwhileIsTaken(t *testing.T) {
	c := newCrashed(t)
	dir := c.dir + "/store"
	r, err := c.take(c.dir, faultbucket.NewMortal(&spoiling{directory.New(dir), dir}),
		crashingState{})
	if err != nil || r.Sequence != 3 {
		t.Errorf("%+v, %v, want snapshot 3", r, err)
	}
}

// endlessSource is a source whose lists never come to an end.
type endlessSource struct{ capture.Source }

func (endlessSource) List(ctx context.Context, _ kube.Kind, _ kube.ListOptions,
	_ func([]byte) error) (kube.ListResult, error) {
	<-ctx.Done()
	return kube.ListResult{}, ctx.Err()
}

// TestASnapshotOfAnEndlessSourceEnds with the reason, and not as one that was interrupted.
func TestASnapshotOfAnEndlessSourceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrashed(t)
		o := c.source.Options(c.open(directory.New(c.dir + "/store")))
		o.Source = endlessSource{o.Source}
		_, err := snapshot.Create(t.Context(), o)
		if !errors.Is(err, snapshot.ErrTooLong) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want ErrTooLong alone", err)
		}
	})
}
