package faultbucket

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// ErrDied is what every call of a Mortal answers after its last one: it is about all keys.
var ErrDied error = &bucket.Error{Op: "reach", Class: bucket.ErrUnreachable,
	Err: errors.New("the process died")}

// Mortal is a bucket as a process sees it that dies at one of its calls: that call has its effect
// or not, nobody hears its answer, and there is no later one. The same goes for the commits of its
// catalog.
type Mortal struct {
	bucket bucket.Bucket

	mu      sync.Mutex
	calls   life
	commits life
}

// life counts what a process does of one kind.
type life struct {
	n, last int
	after   bool
}

func (l *life) over() bool { return l.last > 0 && l.n >= l.last }

// NewMortal gives a Mortal that does not die.
func NewMortal(b bucket.Bucket) *Mortal { return &Mortal{bucket: b} }

// DieAt makes call number n, from 1 on and counted from now, the last; with after it still has its
// effect. 0 lets it live.
func (m *Mortal) DieAt(n int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.commits = life{last: n, after: after}, life{}
}

// DieAtCommit is DieAt for the commits of the catalog.
func (m *Mortal) DieAtCommit(n int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.commits = life{}, life{last: n, after: after}
}

// Calls is how many there were of the bucket since DieAt or DieAtCommit.
func (m *Mortal) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls.n
}

// Commits is how many there were since then.
func (m *Mortal) Commits() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.commits.n
}

// Commit is for catalog.Options.
func (m *Mortal) Commit(do func() error) error { return m.live(&m.commits, do) }

func (m *Mortal) call(do func() error) error { return m.live(&m.calls, do) }

func (m *Mortal) live(l *life, do func() error) error {
	m.mu.Lock()
	if m.calls.over() || m.commits.over() {
		m.mu.Unlock()
		return ErrDied
	}
	l.n++
	dies, after := l.over(), l.after
	m.mu.Unlock()
	if dies && !after {
		return ErrDied
	}
	err := do()
	if dies {
		return ErrDied
	}
	return err
}

// Put implements bucket.Bucket.
func (m *Mortal) Put(ctx context.Context, key string, data []byte) error {
	return m.call(func() error { return m.bucket.Put(ctx, key, data) })
}

// Get implements bucket.Bucket.
func (m *Mortal) Get(ctx context.Context, key string) (r io.ReadCloser, err error) {
	died := m.call(func() error {
		r, err = m.bucket.Get(ctx, key)
		return err
	})
	if errors.Is(died, ErrDied) && r != nil {
		_ = r.Close()
		r = nil
	}
	return r, died
}

// Stat implements bucket.Bucket.
func (m *Mortal) Stat(ctx context.Context, key string) (i bucket.Info, err error) {
	died := m.call(func() error {
		i, err = m.bucket.Stat(ctx, key)
		return err
	})
	return i, died
}

// List implements bucket.Bucket.
func (m *Mortal) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	return m.call(func() error { return m.bucket.List(ctx, prefix, fn) })
}

// Delete implements bucket.Remover where the bucket does.
func (m *Mortal) Delete(ctx context.Context, key string) error {
	r, ok := m.bucket.(bucket.Remover)
	if !ok {
		return errors.New("the bucket deletes nothing")
	}
	return m.call(func() error { return r.Delete(ctx, key) })
}

// BatchSize implements bucket.BatchRemover as the bucket does.
func (m *Mortal) BatchSize() int { return bucket.BatchSizeOf(m.bucket) }

// DeleteBatch implements bucket.BatchRemover. Each key counts as a call, so that a process can die
// while a batch is half done.
func (m *Mortal) DeleteBatch(ctx context.Context, keys []string) map[string]error {
	return bucket.DeleteEach(ctx, m, keys)
}

func (m *Mortal) String() string { return m.bucket.String() }
