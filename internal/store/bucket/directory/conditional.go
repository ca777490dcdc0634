package directory

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

var _ bucket.Conditional = (*Bucket)(nil)

// lockName is the file in a folder that is locked while a key of that folder is replaced. It stays;
// it begins with a dot and so is no key.
const lockName = ".lock"

// GetTagged reads a file; its tag is the SHA-256 of its bytes. It needs no lock: a file is replaced
// by renaming.
func (d *Bucket) GetTagged(ctx context.Context, key string) ([]byte, string, error) {
	data, err := bucket.ReadAll(ctx, d, key, bucket.MaxTagged)
	if err != nil {
		return nil, "", err
	}
	return data, tagOf(data), nil
}

func tagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// PutIf compares and renames under a lock on the folder, which the operating system takes back when
// a process dies.
func (d *Bucket) PutIf(ctx context.Context, key string, data []byte, tag string) (string, error) {
	root, err := d.begin(ctx, "put", key)
	if err != nil {
		return "", err
	}
	defer root.Close()
	dir := path.Dir(key)
	if err := d.makeDirs(root, dir); err != nil {
		return "", dirError("put", key, err, nil)
	}
	lock, err := lockFile(ctx, root, path.Join(dir, lockName))
	if err != nil {
		return "", dirError("put", key, err, nil)
	}
	defer lock.Close()
	_, current, err := d.GetTagged(ctx, key)
	if err != nil && !errors.Is(err, bucket.ErrNotFound) {
		return "", err
	}
	if current != tag {
		return "", &bucket.Error{Op: "put", Key: key, Class: bucket.ErrConflict}
	}
	temp := path.Join(dir, tempPrefix+rand.Text())
	if err := writeNew(root, temp, data); err != nil {
		return "", dirError("put", key, err, nil)
	}
	err = ctx.Err() // the last moment at which a cancelled PutIf changes nothing
	if err == nil {
		err = root.Rename(temp, key)
	}
	if err != nil {
		return "", dirError("put", key, errors.Join(err, root.Remove(temp)), nil)
	}
	if err := syncDir(root, dir); err != nil {
		return "", dirError("put", key, err, nil)
	}
	return tagOf(data), nil
}

// lockFile opens and locks a file; closing it releases the lock. After locking it compares the file
// with the one that has the name now: if somebody removed and recreated it meanwhile, two writers
// would each hold a lock of their own.
func lockFile(ctx context.Context, root *os.Root, name string) (*os.File, error) {
	for {
		f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(ctx, f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		there, err := root.Lstat(name)
		if err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}
