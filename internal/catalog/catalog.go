package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// defaultLockTimeout is long enough for a mgmtctl that is just ending, and short enough for an
	// operator to wait.
	defaultLockTimeout = 2 * time.Second
	lockRetryInterval  = 50 * time.Millisecond
)

// Options of [Open]; production uses the zero value.
type Options struct {
	// LockTimeout is how long to wait for another process to close the file; 0 means 2 s.
	LockTimeout time.Duration
	// Now returns the times that are stored; nil means time.Now.
	Now func() time.Time
	// Commit wraps each commit, which it makes by calling do; nil commits directly. Tests end the
	// process there.
	Commit func(do func() error) error
}

// Catalog is an open catalog. Its methods may be called from many goroutines.
type Catalog struct {
	db   *bolt.DB
	path string
	now  func() time.Time
	// around is Options.Commit.
	around func(do func() error) error

	queueMu  sync.Mutex
	queue    []*pending // writes that wait for the next commit
	commitMu sync.Mutex // held by the goroutine that commits

	closed    chan struct{}
	closeOnce sync.Once
	closeErr  error

	mu          sync.Mutex    // guards what follows; never held while a transaction is begun
	changed     chan struct{} // closed at the next change of an operation
	progress    map[OperationID]*liveProgress
	inFlight    map[string]struct{}
	interrupted map[OperationID]struct{}
	feeds       map[OperationID]*Feed
}

// Open opens the catalog at path. When there is none, it makes one: the folder with mode 0700, the
// file with 0600. It migrates an older schema. The file stays locked until Close. Open writes the
// id of this process to path.pid, so that other processes can name the holder of the lock.
//
// Errors: *LockedError after the lock timeout, *DamagedError, *FutureSchemaError, ErrNoSpace, the
// context's while waiting for the lock. None of them changes an existing file.
func Open(ctx context.Context, path string, opts Options) (*Catalog, error) {
	if opts.LockTimeout == 0 {
		opts.LockTimeout = defaultLockTimeout
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Commit == nil {
		opts.Commit = func(do func() error) error { return do() }
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open catalog: make folder: %w", wrapNoSpace(err))
	}
	db, err := lock(ctx, path, opts.LockTimeout)
	if err != nil {
		return nil, err
	}
	writePID(path)
	c := &Catalog{
		db:          db,
		path:        path,
		now:         func() time.Time { return opts.Now().UTC() },
		around:      opts.Commit,
		closed:      make(chan struct{}),
		changed:     make(chan struct{}),
		progress:    map[OperationID]*liveProgress{},
		inFlight:    map[string]struct{}{},
		interrupted: map[OperationID]struct{}{},
		feeds:       map[OperationID]*Feed{},
	}
	if err := c.prepare(); err != nil {
		if damaged, ok := errors.AsType[*DamagedError](err); ok {
			damaged.Unfinished = c.unfinished()
		}
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// prepare checks the size of the file, migrates its schema, and notes the operations that a dead
// process left running.
func (c *Catalog) prepare() error {
	if err := c.checkSize(); err != nil {
		return err
	}
	if err := c.migrate(migrations); err != nil {
		return err
	}
	left, err := c.Operations(context.Background(), OperationFilter{States: []State{Planned, Running}})
	for _, op := range left {
		c.interrupted[op.ID] = struct{}{}
	}
	return err
}

// unfinished returns the restores and moves of a damaged file that are not at their end, as far as
// they can be read.
func (c *Catalog) unfinished() []string {
	var list []string
	_ = c.view(context.Background(), func(tx *bolt.Tx) error {
		operations := tx.Bucket(bucketOperations)
		if operations == nil {
			return nil
		}
		return operations.ForEachBucket(func(k []byte) error { // not by the index, which may be damaged
			op, err := decodeOperation(operations.Bucket(k).Get(keyRecord))
			if err == nil && op.Changed && !op.forgettable(operations.Bucket(k)) {
				list = append(list, fmt.Sprintf("%s (%s, %s)", op.ID, op.Kind, op.State))
			}
			return nil
		})
	})
	return list
}

// checkSize refuses a file that was cut short: reading the missing pages through the memory map
// would end the process with SIGBUS.
func (c *Catalog) checkSize() error {
	info, err := os.Stat(c.path)
	if err != nil {
		return fmt.Errorf("open catalog: %w", err)
	}
	return c.view(context.Background(), func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%w: file has %d bytes of %d", errRecord, info.Size(), tx.Size())
		}
		return nil
	})
}

// Path returns the path of the file.
func (c *Catalog) Path() string { return c.path }

// Close waits for transactions in progress, ends the watchers, and unlocks the file. A second call
// does nothing.
func (c *Catalog) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		// Before the lock goes: afterwards the file may be the next holder's.
		removePID(c.path)
		if err := c.db.Close(); err != nil {
			c.closeErr = fmt.Errorf("close catalog: %w", c.wrap(err))
		}
	})
	return c.closeErr
}

// lock opens the bbolt file as soon as no other process has it open, within the timeout. bbolt
// could wait by itself, but not for a context.
func lock(ctx context.Context, path string, timeout time.Duration) (*bolt.DB, error) {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		db, err := openBolt(path)
		if !errors.Is(err, bolterrors.ErrTimeout) {
			return db, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("open catalog %s: wait for lock: %w", path, ctx.Err())
		case <-deadline.C:
			return nil, &LockedError{Path: path, PID: holder(path)}
		case <-time.After(lockRetryInterval):
		}
	}
}

// openBolt tries once to open and lock the file. Damaged pages make bbolt panic or read outside of
// its memory map; openBolt returns both as *DamagedError.
func openBolt(path string) (*bolt.DB, error) { return openBoltWith(path, bolt.Options{}) }

// openBoltWith is openBolt with options for the access to the file.
func openBoltWith(path string, o bolt.Options) (db *bolt.DB, err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// bbolt has lost track of the file. Its memory map stays; the lock must not, or moving
			// the file away would not help.
			unlock(file)
			_ = file.Close()
			db, err = nil, &DamagedError{Path: path, Cause: fmt.Errorf("panic: %v", r)}
		}
	}()
	o.Timeout, o.FreelistType = time.Nanosecond, bolt.FreelistMapType // a single try
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		if err != nil {
			return nil, err
		}
		file = f
		if o.ReadOnly {
			return f, nil
		}
		return f, closeToOthers(f)
	}
	db, err = bolt.Open(path, 0o600, &o)
	switch {
	case err == nil || errors.Is(err, bolterrors.ErrTimeout):
		return db, err
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch),
		errors.Is(err, bolterrors.ErrChecksum),
		strings.Contains(err.Error(), "file size too small"):
		return nil, &DamagedError{Path: path, Cause: err}
	}
	return nil, fmt.Errorf("open catalog: %w", wrapNoSpace(err))
}

// closeToOthers removes the rights of group and others from a file with a wider mode, for example a
// copy.
func closeToOthers(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return f.Chmod(0o600)
}
