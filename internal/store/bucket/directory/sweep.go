package directory

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

var _ bucket.Sweeper = (*Bucket)(nil)

// Sweep removes the temporary files of Put and PutIf that are older than a time. Their process has
// died, or it is so slow that its write fails when the file is gone: it links or renames the file
// last.
func (d *Bucket) Sweep(ctx context.Context, before time.Time, removed func(size int64)) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: "delete", Err: err}
	}
	root, err := d.openRoot("delete", "")
	if err != nil {
		return err
	}
	defer root.Close()
	return d.sweep(ctx, root, ".", before, removed)
}

// sweep visits one folder, and those in it that can be parts of keys: no Put writes into another.
func (d *Bucket) sweep(ctx context.Context, root *os.Root, dir string, before time.Time,
	removed func(size int64)) error {
	f, err := root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // went away meanwhile
	}
	if err != nil {
		return dirError("list", dir, err, nil)
	}
	entries, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return dirError("list", dir, err, nil)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return &bucket.Error{Op: "delete", Key: dir, Err: err}
		}
		name := path.Join(dir, e.Name())
		switch {
		case e.IsDir() && bucket.ValidSegment(e.Name()):
			err = d.sweep(ctx, root, name, before, removed)
		case e.Type().IsRegular() && strings.HasPrefix(e.Name(), tempPrefix):
			err = sweepFile(root, name, before, removed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sweepFile(root *os.Root, name string, before time.Time, removed func(size int64)) error {
	info, err := root.Lstat(name)
	if err == nil && info.ModTime().Before(before) {
		if err = root.Remove(name); err == nil {
			removed(info.Size())
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return dirError("delete", name, err, nil)
	}
	return nil
}
