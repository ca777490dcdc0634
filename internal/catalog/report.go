package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Report is what a check of a catalog found.
type Report struct {
	Path string
	// Size of the file in bytes, and how many of them hold nothing.
	Size, Free int64
	// Schema is the version in the file; 0 when it cannot be read.
	Schema uint32
	// Operations and Snapshots are how many the catalog has.
	Operations, Snapshots int
	// Problems are what is wrong; none in a catalog that can be used.
	Problems []error
	// Unfinished are the operations that a damaged file must be kept for, as in DamagedError.
	Unfinished []string
}

// Report checks an open catalog, as Check does, and says what it has.
func (c *Catalog) Report(ctx context.Context) (Report, error) {
	r := Report{Path: c.path}
	err := r.count(ctx, c)
	if err == nil {
		r.Problems = c.Check(ctx)
		err = ctx.Err()
	}
	if damaged, ok := errors.AsType[*DamagedError](err); ok {
		r.Problems, err = append(r.Problems, damaged), nil
	}
	r.note(c)
	return r, err
}

// CheckFile checks the catalog at path and changes nothing, not even an older schema. Damage is not
// an error. Errors: ErrNotFound; *LockedError while another process has the file open;
// *FutureSchemaError; the context's.
func CheckFile(ctx context.Context, path string) (Report, error) {
	r := Report{Path: path}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, fmt.Errorf("check catalog: there is no file %s: %w", path, ErrNotFound)
	}
	if err != nil {
		return r, fmt.Errorf("check catalog: %w", err)
	}
	if !info.Mode().IsRegular() {
		return r, fmt.Errorf("check catalog: %s is no file; name the file of the catalog", path)
	}
	if r.Size = info.Size(); r.Size == 0 {
		r.Problems = []error{&DamagedError{Path: path, Cause: errors.New("the file is empty")}}
		return r, nil
	}
	var unfinished []string
	err = r.readOnly(path, false, func(c *Catalog) error {
		err := c.checkSize()
		if err == nil {
			err = r.count(ctx, c)
		}
		if err == nil && r.Schema == newestSchema() {
			r.Problems, err = c.checkRecords(ctx)
		}
		unfinished = c.unfinished()
		return err
	})
	if err == nil {
		// With the list of free pages, where a damaged one is an error of the open: in bbolt's check
		// it would end the process.
		err = r.readOnly(path, true, func(c *Catalog) error {
			r.Problems = append(r.Problems, c.checkPages()...)
			r.note(c)
			return ctx.Err()
		})
	}
	if damaged, ok := errors.AsType[*DamagedError](err); ok {
		r.Problems, err = append(r.Problems, damaged), nil
	}
	if len(r.Problems) > 0 {
		r.Unfinished = unfinished
	}
	return r, err
}

// readOnly calls do with the file, which is locked meanwhile, but not to other readers.
func (r *Report) readOnly(path string, freePages bool, do func(*Catalog) error) error {
	db, err := openBoltWith(path, bolt.Options{ReadOnly: true, PreLoadFreelist: freePages})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return &LockedError{Path: path, PID: holder(path)}
	}
	if err != nil {
		return err
	}
	c := &Catalog{db: db, path: path}
	return errors.Join(do(c), c.wrap(db.Close()))
}

// count reads the schema and how much the catalog has.
func (r *Report) count(ctx context.Context, c *Catalog) error {
	return c.view(ctx, func(tx *bolt.Tx) (err error) {
		if r.Schema, err = schemaVersion(tx); err != nil {
			return err
		}
		if r.Schema > newestSchema() {
			return &FutureSchemaError{Path: c.path, Found: r.Schema, Known: newestSchema()}
		}
		r.Operations, r.Snapshots = countKeys(tx.Bucket(bucketOperations)),
			countKeys(tx.Bucket(bucketSnapshots))
		return nil
	})
}

func countKeys(b *bolt.Bucket) (n int) {
	if b == nil {
		return 0
	}
	cursor := b.Cursor()
	for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
		n++
	}
	return n
}

// note adds what the open file says of its pages, and for a damaged one what it is needed for.
func (r *Report) note(c *Catalog) {
	r.Free = int64(c.db.Stats().FreePageN+c.db.Stats().PendingPageN) * int64(c.db.Info().PageSize)
	if info, err := os.Stat(c.path); err == nil {
		r.Size = info.Size()
	}
	if len(r.Problems) > 0 && len(r.Unfinished) == 0 {
		r.Unfinished = c.unfinished()
	}
}

// newestSchema is the version that this program writes.
func newestSchema() uint32 { return migrations[len(migrations)-1].version }
