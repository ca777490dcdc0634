package directory_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/buckettest"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// childEnv makes the test binary act as another process; see TestMain.
const childEnv = "STORE_TEST_CHILD"

// TestMain lets a test start this binary again with fewer rights, or with a limit on file sizes:
// neither can be had inside one process of root's.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child puts one key and prints the class of the error.
func child(dir string) int {
	if os.Getenv("LIMIT") != "" {
		limit := syscall.Rlimit{Cur: 1 << 16, Max: 1 << 16}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	b := directory.New(dir)
	err := b.Put(context.Background(), "packs/ab/key", make([]byte, 1<<20))
	switch {
	case errors.Is(err, bucket.ErrNoSpace):
		fmt.Print("ErrNoSpace")
	case errors.Is(err, bucket.ErrDenied):
		fmt.Print("ErrDenied")
	default:
		fmt.Print(err)
	}
	return 0
}

func TestDirectoryFulfilsTheContract(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return directory.New(t.TempDir()) })
}

func TestDirectoryWritesOnConditions(t *testing.T) {
	buckettest.RunConditional(t, func(t *testing.T) buckettest.ConditionalBucket {
		return directory.New(t.TempDir())
	})
	buckettest.RunRemover(t, func(t *testing.T) buckettest.RemoverBucket {
		return directory.New(t.TempDir())
	})
}

func TestMissingDirectoryIsNoStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parent", "root")
	b := directory.New(path)
	_, getErr := b.Get(t.Context(), "key")
	errs := map[string]error{
		"put":  b.Put(t.Context(), "key", nil),
		"get":  getErr,
		"list": b.List(t.Context(), "", nil),
		"init": b.Init(t.Context()),
	}
	for call, err := range errs {
		if !errors.Is(err, bucket.ErrStoreMissing) || errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("%s: %v, want ErrStoreMissing", call, err)
		}
	}
	if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Init(t.Context()); err != nil {
			t.Errorf("init: %v", err)
		}
	}
	if err := b.Put(t.Context(), "key", nil); err != nil {
		t.Errorf("put: %v", err)
	}
	file := directory.New(filepath.Join(path, "key"))
	if err := file.Put(t.Context(), "key", nil); !errors.Is(err, bucket.ErrStoreMissing) {
		t.Errorf("put below a file: %v, want ErrStoreMissing", err)
	}
}

func TestDirectoryIsForItsOwnerOnly(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	b := directory.New(root)
	if err := errors.Join(b.Init(t.Context()), b.Put(t.Context(), "packs/ab/key",
		[]byte("x"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "packs": fs.ModeDir | 0o700,
		"packs/ab": fs.ModeDir | 0o700, "packs/ab/key": 0o600} {
		info, err := os.Lstat(filepath.Join(root, path))
		if err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// TestDirPassesOverWhatIsNoKey: an interrupted Put leaves a temporary file. It is no key and does
// not stop the next Put; neither does a file of another program.
func TestDirPassesOverWhatIsNoKey(t *testing.T) {
	root := t.TempDir()
	b := directory.New(root)
	if err := b.Put(t.Context(), "packs/ab/key", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"packs/ab/.tmp-LEFTOVER", ".DS_Store", "my notes.txt",
		"packs/ab/key~"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	err := errors.Join(
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Symlink(outside, filepath.Join(root, "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(root, "linked-dir")),
		os.MkdirAll(filepath.Join(root, "lost+found"), 0),
		syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	err = b.List(t.Context(), "", func(i bucket.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	if err != nil || len(keys) != 1 || keys[0] != "packs/ab/key" {
		t.Errorf("list: %v, %v, want the one key", keys, err)
	}
	if _, err := b.Get(t.Context(), "fifo"); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("get of a FIFO: %v, want ErrNotFound", err)
	}
	for _, key := range []string{"link", "linked-dir/outside"} {
		if r, err := b.Get(t.Context(), key); err == nil {
			r.Close()
			t.Errorf("get %s followed a link out of the store", key)
		}
	}
	if err := b.Put(t.Context(), "linked-dir/new", nil); err == nil {
		t.Error("put followed a link out of the store")
	}
}

// assertEmpty fails when a failed Put left a key or a temporary file.
func assertEmpty(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("a failed put left %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFullDiskLeavesNothing(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	b := directory.New(root)
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data)
	err := b.Put(t.Context(), "packs/ab/key", data)
	if !errors.Is(err, bucket.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("put on a full disk: %v, want ErrNoSpace and the cause", err)
	}
	assertEmpty(t, root)
	if err := b.Put(t.Context(), "packs/ab/key", data[:1000]); err != nil {
		t.Errorf("put after that: %v", err)
	}
}

func TestFileSizeLimitLeavesNothing(t *testing.T) {
	root := t.TempDir()
	if got := runChild(t, root, nil, "LIMIT=1"); got != "ErrNoSpace" {
		t.Errorf("put above the limit: %s, want ErrNoSpace", got)
	}
	assertEmpty(t, root)
}

func TestForbiddenDirectoryIsDenied(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := errors.Join(os.Mkdir(root, 0o555), os.Chmod(root, 0o555)); err != nil {
		t.Fatal(err)
	}
	var attr *syscall.SysProcAttr
	if os.Getuid() == 0 {
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if got := runChild(t, root, attr); got != "ErrDenied" {
		t.Errorf("put without the right to: %s, want ErrDenied", got)
	}
	assertEmpty(t, root)
}

// runChild runs child in another process. The binary is copied to where another user may execute
// it.
func runChild(t *testing.T, dir string, attr *syscall.SysProcAttr, env ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	binary := filepath.Join(t.TempDir(), "child")
	for _, d := range []string{filepath.Dir(binary), filepath.Dir(filepath.Dir(binary)),
		filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(out.Chmod(0o755), out.Close()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), append(env, childEnv+"="+dir, "GORACE=atexit_sleep_ms=0")...)
	cmd.SysProcAttr = attr
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("run child: %v\n%s", err, stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// TestSweepRemovesOldTemporaryFilesOnly: a young one may belong to a write under way, and whatever
// else is in the directory is not ours to remove.
func TestSweepRemovesOldTemporaryFilesOnly(t *testing.T) {
	root := t.TempDir()
	b := directory.New(root)
	for _, key := range []string{"packs/ab/key", "mgmtd.json"} {
		if err := b.Put(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.Now().Add(-time.Hour)
	stay := []string{"packs/ab/.tmp-YOUNG", "notes.txt", ".DS_Store", ".hidden/.tmp-OTHER"}
	for _, name := range append([]string{"packs/ab/.tmp-OLD", ".tmp-OLD"}, stay...) {
		file := filepath.Join(root, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700),
			os.WriteFile(file, []byte("half"), 0o600))
		if !strings.HasSuffix(name, "YOUNG") {
			err = errors.Join(err, os.Chtimes(file, limit, limit.Add(-time.Second)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var sizes []int64
	err := b.Sweep(t.Context(), limit, func(size int64) { sizes = append(sizes, size) })
	if err != nil || fmt.Sprint(sizes) != "[4 4]" {
		t.Errorf("swept %v, %v, want two files of 4 bytes", sizes, err)
	}
	for _, name := range append(stay, "packs/ab/key", "mgmtd.json") {
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			t.Errorf("%s should stay: %v", name, err)
		}
	}
	for _, name := range []string{"packs/ab/.tmp-OLD", ".tmp-OLD"} {
		if _, err := os.Lstat(filepath.Join(root, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s should be gone: %v", name, err)
		}
	}
}
