package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// childEnv makes the test binary run one of children instead of the tests.
const childEnv = "CATALOG_TEST_CHILD"

// children are what tests do in a process of its own. The arguments follow after the name,
// separated by newlines.
var children = map[string]func(args []string){
	"hold":  childHold,
	"crash": childCrash,
	"many":  childMany,
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		args := strings.Split(spec, "\n")
		children[args[0]](args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child prepares a process that runs one of children.
func child(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	return cmd
}

// must ends a child process; tests use t.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
}

// openTest opens a catalog that is checked and closed at the end of the test. Its clock advances
// by one second with each reading.
func openTest(t testing.TB) *Catalog {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "catalog.db"))
}

func openPath(t testing.TB, path string) *Catalog {
	t.Helper()
	var tick atomic.Int64
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c, err := Open(t.Context(), path, Options{Now: func() time.Time {
		return start.Add(time.Duration(tick.Add(1)) * time.Second)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, c) })
	return c
}

// closeTest checks and closes a catalog; it may be called before the cleanup does.
func closeTest(t testing.TB, c *Catalog) {
	t.Helper()
	select {
	case <-c.closed:
		return
	default:
	}
	PostTestCheck(t, c)
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// newOperation creates an operation of kind restore and takes it through the states.
func newOperation(t testing.TB, c *Catalog, states ...State) OperationID {
	t.Helper()
	op, err := c.CreateOperation(t.Context(), Operation{Kind: KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		setState(t, c, op.ID, s)
	}
	return op.ID
}

func setState(t testing.TB, c *Catalog, id OperationID, s State) {
	t.Helper()
	if _, err := c.SetState(t.Context(), id, s, Outcome{}); err != nil {
		t.Fatal(err)
	}
}

func TestCatalogIsForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "mgmtd", "catalog.db")
	c := openPath(t, path)
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir,
		path + ".pid": 0o600} {
		if info, err := os.Stat(p); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", p, info.Mode(), err, want)
		}
	}
	closeTest(t, c)
	if _, err := os.Stat(path + ".pid"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pid file after close: %v", err)
	}

	// A copy made with a wide mode is closed again.
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	openPath(t, path)
	if info, _ := os.Stat(path); info.Mode() != 0o600 {
		t.Errorf("mode of a widened file after open: %v", info.Mode())
	}
}

func TestOpenLockedByAnotherProcessNamesIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catalog.db")
	cmd := child(t, "hold", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	open := func(ctx context.Context) error {
		_, err := Open(ctx, path, Options{LockTimeout: 100 * time.Millisecond})
		return err
	}
	var locked *LockedError
	if err := open(t.Context()); !errors.As(err, &locked) || locked.PID != cmd.Process.Pid ||
		locked.Path != path {
		t.Errorf("open: %v; want it to name process %d", err, cmd.Process.Pid)
	}
	stale(t, path)
	if err := open(t.Context()); !errors.As(err, &locked) || locked.PID != 0 {
		t.Errorf("open with a stale pid file: %v; want no process named", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := open(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("open with a context that ended: %v", err)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	openPath(t, path) // the lock went with the process
}

// stale leaves the id of a process that has ended.
func stale(t *testing.T, path string) {
	t.Helper()
	ended := exec.CommandContext(t.Context(), "true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".pid", fmt.Append(nil, ended.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
}

func childHold(args []string) {
	_, err := Open(context.Background(), args[0], Options{})
	must(err)
	fmt.Println("held")
	time.Sleep(time.Minute)
}

func TestOpenWaitsForTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	go func() {
		time.Sleep(120 * time.Millisecond)
		closeTest(t, c)
	}()
	openPath(t, path)
}

func TestOpenReportsADamagedFile(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, whole)
	for range 50 {
		newOperation(t, c, Running, Stopped)
	}
	closeTest(t, c)
	good, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	edit := func(fn func(b []byte)) []byte {
		b := append([]byte(nil), good...)
		fn(b)
		return b
	}
	for name, content := range map[string][]byte{
		"text":              []byte("not a database"),
		"long text":         []byte(strings.Repeat("not a database\n", 10000)),
		"zeros":             make([]byte, len(good)),
		"cut short":         good[:len(good)/2/page*page],
		"cut to metas":      good[:2*page],
		"metas overwritten": edit(func(b []byte) { clear(b[:2*page]) }),
		"all but metas overwritten": edit(func(b []byte) {
			for i := range b[2*page:] {
				b[2*page+i] = 0xff
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "catalog.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), path, Options{})
			var damaged *DamagedError
			if !errors.As(err, &damaged) || !strings.Contains(damaged.Hint(), "mv "+path) {
				t.Fatalf("open: %v; want a DamagedError that says how to go on", err)
			}
			after, err := os.ReadFile(path)
			if err != nil || string(after) != string(content) {
				t.Errorf("file was changed, %v", err)
			}
			// The lock must be gone, or moving the file away would not help.
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			openPath(t, path)
		})
	}
}

// TestDamagedPagesAreErrors: damage in the middle need not show at once. Whatever it does to bbolt,
// it must not end the process.
func TestDamagedPagesAreErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	for range 100 {
		newOperation(t, c)
	}
	closeTest(t, c)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	var found int
	for p := 2; p < len(good)/page; p += 1 + p/20 {
		bad := append([]byte(nil), good...)
		for i := p*page + 8; i < (p+1)*page; i += 3 {
			bad[i] ^= 0x5a
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(t.Context(), path, Options{})
		if err == nil {
			_, err = c.Operations(t.Context(), OperationFilter{})
			if closeErr := c.Close(); closeErr != nil {
				t.Errorf("close: %v", closeErr)
			}
		}
		var damaged *DamagedError
		if errors.As(err, &damaged) {
			found++
		} else if err != nil {
			t.Errorf("page %d: %v; want a DamagedError", p, err)
		}
	}
	if found == 0 {
		t.Error("no damage was found at all")
	}
}

func TestOpenAnotherProgramsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, err := Open(t.Context(), path, Options{}); !errors.As(err, &damaged) {
		t.Errorf("open: %v", err)
	}
}

func TestOpenRefusesANewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	err := c.update(t.Context(), func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint32(nil, 99))
	})
	if err != nil {
		t.Fatal(err)
	}
	closeTest(t, c)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path, Options{})
	var future *FutureSchemaError
	if !errors.As(err, &future) || future.Found != 99 ||
		!strings.Contains(future.Hint(), "do not delete it") {
		t.Errorf("open: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("file was changed, %v", err)
	}
}

func TestMigrationsMakeTheBuckets(t *testing.T) {
	c := openTest(t)
	err := c.view(t.Context(), func(tx *bolt.Tx) error {
		version, err := schemaVersion(tx)
		if err != nil || version != 9 {
			t.Errorf("schema version %d, %v", version, err)
		}
		for _, name := range [][]byte{bucketMeta, bucketSnapshots, bucketSnapshotIDs,
			bucketOperations, bucketOperationIndex, bucketSchedules, bucketVerifies, bucketSnapshotState,
			bucketEpochs, bucketPlaces} {
			if tx.Bucket(name) == nil {
				t.Errorf("bucket %s is missing", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMigrateRunsWhatIsNewInOrderAndOnce(t *testing.T) {
	c := openTest(t)
	newest := migrations[len(migrations)-1].version
	var ran []uint32
	note := func(version uint32) migration {
		return migration{version, "note", func(*bolt.Tx) error { ran = append(ran, version); return nil }}
	}
	list := append(slices.Clone(migrations), note(newest+1), note(newest+2))
	for range 2 {
		if err := c.migrate(list); err != nil {
			t.Fatal(err)
		}
	}
	if want := []uint32{newest + 1, newest + 2}; !slices.Equal(ran, want) {
		t.Errorf("ran %v", ran)
	}
	broken := errors.New("broken")
	list = append(list, note(newest+3), migration{newest + 4, "break",
		func(*bolt.Tx) error { return broken }})
	if err := c.migrate(list); !errors.Is(err, broken) {
		t.Errorf("migrate: %v", err)
	}
	_ = c.view(t.Context(), func(tx *bolt.Tx) error {
		if version, _ := schemaVersion(tx); version != newest+2 {
			t.Errorf("schema version after a migration that failed: %d; nothing of the run is stored",
				version)
		}
		return nil
	})
}

func TestClosedCatalogReturnsErrClosed(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c)
	closeTest(t, c)
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := c.Operation(t.Context(), id); !errors.Is(err, ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if err := c.PutSnapshot(t.Context(), testSnapshot(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("put: %v", err)
	}
}
