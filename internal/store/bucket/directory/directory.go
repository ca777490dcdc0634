// Package directory stores a bucket in a directory of this host.
package directory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Bucket is a bucket.Bucket in a directory: a key is the path of a file below it. Files have mode
// 0600, directories 0700. The file system must know hard links (that is how a file appears whole
// and never replaces another).
//
// Every call opens the directory again, so that it notices a file system that was unmounted, or
// mounted over.
type Bucket struct {
	path string

	mu sync.Mutex
	// durable holds the directories whose entry in their parent this process has synced. A
	// directory made by another process that has not synced it yet would otherwise take our file
	// along when the power fails.
	durable map[string]bool
}

var (
	_ bucket.Bucket  = (*Bucket)(nil)
	_ bucket.Remover = (*Bucket)(nil)
)

// tempPrefix begins with a dot, which no key segment may: List and Get cannot see what a crash left
// behind.
const tempPrefix = ".tmp-"

// New returns the bucket in the directory path, which need not be there yet. It touches nothing.
func New(path string) *Bucket {
	return &Bucket{path: filepath.Clean(path), durable: map[string]bool{}}
}

// String returns the path.
func (d *Bucket) String() string { return d.path }

// Init makes the directory when it is not there, but not its parents: those missing means a wrong
// path or a file system that is not mounted. May run twice. ErrStoreMissing, ErrDenied, ErrNoSpace.
func (d *Bucket) Init(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: "open", Key: d.path, Err: err}
	}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return dirError("open", d.path, err, bucket.ErrStoreMissing)
	}
	parent, err := os.Open(filepath.Dir(d.path))
	if err != nil {
		return dirError("open", d.path, err, nil)
	}
	defer parent.Close()
	if err := parent.Sync(); err != nil {
		return dirError("open", d.path, err, nil)
	}
	return nil
}

// begin opens the root for one operation on a key.
func (d *Bucket) begin(ctx context.Context, op, key string) (*os.Root, error) {
	if err := ctx.Err(); err != nil {
		return nil, &bucket.Error{Op: op, Key: key, Err: err}
	}
	if err := bucket.ValidateKey(key); err != nil {
		return nil, &bucket.Error{Op: op, Err: err}
	}
	return d.openRoot(op, key)
}

func (d *Bucket) openRoot(op, key string) (*os.Root, error) {
	root, err := os.OpenRoot(d.path)
	if err == nil {
		return root, nil
	}
	if info, statErr := os.Stat(d.path); statErr == nil && !info.IsDir() {
		// OpenRoot returns the same error for a file as for other things.
		err = &fs.PathError{Op: "open", Path: d.path, Err: syscall.ENOTDIR}
	}
	return nil, dirError(op, key, err, bucket.ErrStoreMissing)
}

// Put writes a temporary file in the folder of the key, syncs it, links it to its name, which fails
// when the name exists, and syncs the directory.
func (d *Bucket) Put(ctx context.Context, key string, data []byte) error {
	root, err := d.begin(ctx, "put", key)
	if err != nil {
		return err
	}
	defer root.Close()
	dir := path.Dir(key)
	if err := d.makeDirs(root, dir); err != nil {
		return dirError("put", key, err, nil)
	}
	temp := path.Join(dir, tempPrefix+rand.Text())
	if err := writeNew(root, temp, data); err != nil {
		return dirError("put", key, err, nil)
	}
	linkErr := ctx.Err() // the last moment at which a cancelled Put leaves nothing
	if linkErr == nil {
		linkErr = root.Link(temp, key)
	}
	removeErr := root.Remove(temp)
	if errors.Is(linkErr, syscall.EPERM) || errors.Is(linkErr, syscall.ENOTSUP) {
		// Not "denied": the temporary file could be written right here.
		return &bucket.Error{Op: "put", Key: key,
			Err: fmt.Errorf("the file system knows no hard links: %w", linkErr)}
	}
	if linkErr != nil && !errors.Is(linkErr, fs.ErrExist) {
		return dirError("put", key, linkErr, nil)
	}
	// Sync also when the key was taken: its writer may not have done so yet, and the caller will
	// rely on the bytes being there.
	if err := errors.Join(removeErr, syncDir(root, dir)); err != nil {
		return dirError("put", key, err, nil)
	}
	if linkErr != nil {
		return &bucket.Error{Op: "put", Key: key, Class: bucket.ErrExists}
	}
	return nil
}

// makeDirs makes dir and its parents and syncs the directory above each once per process.
func (d *Bucket) makeDirs(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := d.makeDirs(root, path.Dir(dir)); err != nil {
		return err
	}
	err := root.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d.mu.Lock()
	known := d.durable[dir]
	d.mu.Unlock()
	if err != nil && known {
		return nil
	}
	if err := syncDir(root, path.Dir(dir)); err != nil {
		return err
	}
	d.mu.Lock()
	d.durable[dir] = true
	d.mu.Unlock()
	return nil
}

// writeNew makes a file, durable but for its directory entry; on error it leaves none.
func writeNew(root *os.Root, name string, data []byte) (err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(name))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Get opens the file of a key.
func (d *Bucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	root, err := d.begin(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// The open of a FIFO in the place of a key would block for ever: stat it first.
	if _, err := statFile(root, key); err != nil {
		return nil, dirError("get", key, err, bucket.ErrNotFound)
	}
	f, err := root.Open(key)
	if err != nil {
		return nil, dirError("get", key, err, bucket.ErrNotFound)
	}
	return &dirReader{ctx: ctx, key: key, file: f}, nil
}

// Delete removes the file of a key. Its folder stays, for another Put may be on its way into it.
func (d *Bucket) Delete(ctx context.Context, key string) error {
	root, err := d.begin(ctx, "delete", key)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = statFile(root, key) // a folder is no key
	if err == nil {
		err = root.Remove(key)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err == nil {
		err = syncDir(root, path.Dir(key))
	}
	if err != nil {
		return dirError("delete", key, err, nil)
	}
	return nil
}

// Stat returns the size and time of the file of a key.
func (d *Bucket) Stat(ctx context.Context, key string) (bucket.Info, error) {
	root, err := d.begin(ctx, "stat", key)
	if err != nil {
		return bucket.Info{}, err
	}
	defer root.Close()
	info, err := statFile(root, key)
	if err != nil {
		return bucket.Info{}, dirError("stat", key, err, bucket.ErrNotFound)
	}
	return bucket.Info{Key: key, Size: info.Size(), Modified: info.ModTime().UTC()}, nil
}

// statFile returns fs.ErrNotExist for what is no regular file: it is no key.
func statFile(root *os.Root, key string) (fs.FileInfo, error) {
	info, err := root.Stat(key)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file: %w", fs.ErrNotExist)
	}
	return info, nil
}

// List walks the directories that can hold the prefix, one directory in memory at a time.
func (d *Bucket) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: "list", Key: prefix, Err: err}
	}
	root, err := d.openRoot("list", prefix)
	if err != nil {
		return err
	}
	defer root.Close()
	return d.list(ctx, root, "", prefix, fn)
}

// list visits one directory, "" or ending in "/". A directory sorts as its name and a slash: "a-b"
// comes before "a/b", which is not the order of the names "a" and "a-b".
func (d *Bucket) list(ctx context.Context, root *os.Root, dir, prefix string,
	fn func(bucket.Info) error) error {
	names, err := readNames(root, dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "" {
		return nil // went away meanwhile
	}
	if err != nil {
		return dirError("list", dir, err, nil)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return &bucket.Error{Op: "list", Key: prefix, Err: err}
		}
		key := dir + name
		if strings.HasSuffix(key, "/") {
			if strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key) {
				if err := d.list(ctx, root, key, prefix, fn); err != nil {
					return err
				}
			}
			continue
		}
		if !strings.HasPrefix(key, prefix) || len(key) > bucket.MaxKey {
			continue
		}
		info, err := root.Lstat(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return dirError("list", key, err, nil)
		}
		if err := fn(bucket.Info{Key: key, Size: info.Size(),
			Modified: info.ModTime().UTC()}); err != nil {
			return err
		}
	}
	return nil
}

// readNames returns the regular files and, with a slash at the end, the directories that can be
// parts of keys, sorted.
func readNames(root *os.Root, dir string) ([]string, error) {
	f, err := root.Open(path.Join(".", dir))
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch {
		case !bucket.ValidSegment(e.Name()):
		case e.IsDir():
			names = append(names, e.Name()+"/")
		case e.Type().IsRegular():
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// dirReader makes a read of a local file end with its context, as one of a remote store does.
type dirReader struct {
	ctx  context.Context // of the Get that opened it
	key  string
	file *os.File
}

func (r *dirReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, &bucket.Error{Op: "get", Key: r.key, Err: err}
	}
	n, err := r.file.Read(p)
	if err != nil && err != io.EOF {
		err = dirError("get", r.key, err, nil)
	}
	return n, err
}

func (r *dirReader) Close() error { return r.file.Close() }

// dirError sorts an error of the operating system into a class; missing is what "no such file"
// means here.
func dirError(op, key string, err, missing error) error {
	e := &bucket.Error{Op: op, Key: key, Err: err}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		e.Class = bucket.ErrNoSpace
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Class = bucket.ErrDenied
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		e.Class = missing
	}
	return e
}
