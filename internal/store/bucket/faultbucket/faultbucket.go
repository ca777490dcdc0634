// Package faultbucket puts faults between a store and its bucket, for tests: what networks,
// proxies, servers and disks do at their worst, in an order that a seed decides on.
//
// This holds under all of them, and tests hold the store, the snapshots and the service to it:
//
//   - A write that returned nil is there, with these bytes. One that failed is there whole or not
//     at all, and can be done again.
//   - What a read returns is what was written, or it is an error: of the class of the fault, or
//     damage. (Nobody can know that of an envelope or an ownership record without a signature.)
//   - A snapshot for which Create returned nil is whole in the bucket: it verifies there, and holds
//     what the source was at its resourceVersion.
//   - A verify without findings is right. One with findings may be wrong: it reports what it reads.
//   - A list that lags behind costs a fork in the chain of snapshots, or content that is written
//     twice, and never content.
package faultbucket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Fault is one kind of fault.
type Fault string

// The faults. Those of a call may come before it has an effect, or after it: then the answer is
// lost.
const (
	Timeout     Fault = "timeout"      // of any call
	ServerError Fault = "server error" // of any call: 500
	SlowDown    Fault = "slow down"    // of any call: 503
	NoSpace     Fault = "no space"     // of a write, without an effect
	Cut         Fault = "cut"          // a read ends too early, without an error
	Broken      Fault = "broken"       // a read ends too early, with an error
	Flipped     Fault = "flipped"      // a read gives one bit wrong
	Vanished    Fault = "vanished"     // a key that is there is not found, once
	Lost        Fault = "lost"         // the same, from then on, until Find
	Stale       Fault = "stale"        // a list does not know of the last changes
)

// All are all faults.
var All = []Fault{Timeout, ServerError, SlowDown, NoSpace, Cut, Broken, Flipped, Vanished, Lost,
	Stale}

var (
	ofCalls  = []Fault{Timeout, ServerError, SlowDown}
	ofWrites = []Fault{Timeout, ServerError, SlowDown, NoSpace}
	ofReads  = []Fault{Timeout, ServerError, SlowDown, Cut, Broken, Flipped, Vanished, Lost}
	ofStats  = []Fault{Timeout, ServerError, SlowDown, Vanished, Lost}
	ofLists  = []Fault{Timeout, ServerError, SlowDown, Stale}
)

// memory is how many of the last changes a stale list may not know of.
const memory = 16

// Whole is a bucket that can do all that buckets can.
type Whole interface {
	bucket.Bucket
	bucket.Conditional
	bucket.Remover
}

// Bucket is a bucket with faults. It begins without any.
type Bucket struct {
	next Whole

	mu      sync.Mutex
	rand    *rand.Rand
	share   float64
	faults  []Fault
	hits    map[Fault]int
	changes []change
	lost    map[string]bool
}

// change is a key that was put, or was deleted and its description before that.
type change struct {
	bucket.Info
	deleted bool
}

var _ Whole = (*Bucket)(nil)

// New returns a bucket on another one. The same seed and the same calls, in the same order, give
// the same faults.
func New(next Whole, seed uint64) *Bucket {
	random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // G404: a test has to be repeatable
	return &Bucket{next: next, rand: random, hits: map[Fault]int{}, lost: map[string]bool{}}
}

// Set lets a share of the calls from now on meet one of the faults that are given, as far as they
// can meet it.
func (b *Bucket) Set(share float64, faults ...Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share, b.faults = share, faults
}

// Heal ends all faults, and gives back what was lost.
func (b *Bucket) Heal() {
	b.Set(0)
	b.Find()
}

// Find gives back what was lost so far.
func (b *Bucket) Find() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.lost)
}

// ListAll makes lists show every change so far. A list may lag behind by minutes, but not by hours.
func (b *Bucket) ListAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = nil
}

// Hits returns how often each fault was met.
func (b *Bucket) Hits() map[Fault]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.hits)
}

// pick decides whether a call meets a fault, and whether that comes after its effect.
func (b *Bucket) pick(possible []Fault) (f Fault, after bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.share == 0 || b.rand.Float64() >= b.share {
		return "", false
	}
	set := slices.DeleteFunc(slices.Clone(possible),
		func(f Fault) bool { return !slices.Contains(b.faults, f) })
	if len(set) == 0 {
		return "", false
	}
	f = set[b.rand.IntN(len(set))]
	b.hits[f]++
	return f, b.rand.IntN(2) == 0
}

// intN is a number of the bucket's random source.
func (b *Bucket) intN(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rand.IntN(n)
}

func (b *Bucket) changed(i bucket.Info, deleted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = append(b.changes, change{i, deleted})
	b.changes = b.changes[max(0, len(b.changes)-memory):]
}

func fail(op, key string, f Fault) error {
	e := &bucket.Error{Op: op, Key: key, Class: bucket.ErrUnreachable}
	switch f {
	case Timeout:
		e.Err = errors.New("no answer in time")
	case ServerError:
		e.Err = errors.New("500 Internal Server Error")
	case SlowDown:
		e.Err = errors.New("503 Slow Down")
	case NoSpace:
		e.Class = bucket.ErrNoSpace
	case Vanished, Lost:
		e.Class = bucket.ErrNotFound
	case Broken:
		e.Err = io.ErrUnexpectedEOF
	case Cut, Flipped, Stale: // these spoil an answer and are no error
	}
	return e
}

// String names the place.
func (b *Bucket) String() string { return b.next.String() }

// Init makes the place, without faults.
func (b *Bucket) Init(ctx context.Context) error {
	if i, ok := b.next.(interface{ Init(context.Context) error }); ok {
		return i.Init(ctx)
	}
	return nil
}

// write does a write, with or without its fault.
func (b *Bucket) write(op, key string, faults []Fault, do func() error) error {
	f, after := b.pick(faults)
	if f != "" && (!after || f == NoSpace) {
		return fail(op, key, f)
	}
	if err := do(); err != nil {
		return err
	}
	if f != "" {
		return fail(op, key, f)
	}
	return nil
}

// Put implements bucket.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	return b.write("put", key, ofWrites, func() error {
		err := b.next.Put(ctx, key, data)
		if err == nil {
			b.changed(bucket.Info{Key: key, Size: int64(len(data))}, false)
		}
		return err
	})
}

// PutIf implements bucket.Conditional.
func (b *Bucket) PutIf(ctx context.Context, key string, data []byte, tag string) (newTag string,
	err error) {
	err = b.write("put", key, ofWrites, func() error {
		newTag, err = b.next.PutIf(ctx, key, data, tag)
		return err
	})
	if err != nil {
		return "", err
	}
	return newTag, nil
}

// Delete implements bucket.Remover.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	return b.write("delete", key, ofCalls, func() error {
		info, statErr := b.next.Stat(ctx, key)
		err := b.next.Delete(ctx, key)
		if err == nil && statErr == nil {
			b.changed(info, true)
		}
		return err
	})
}

// BatchSize implements bucket.BatchRemover as the bucket below does.
func (b *Bucket) BatchSize() int { return bucket.BatchSizeOf(b.next) }

// DeleteBatch implements bucket.BatchRemover. Each key may meet a fault of its own.
func (b *Bucket) DeleteBatch(ctx context.Context, keys []string) map[string]error {
	return bucket.DeleteEach(ctx, b, keys)
}

// read gives the fault of a read that is met before any byte is read.
func (b *Bucket) read(op, key string, faults []Fault) (Fault, error) {
	b.mu.Lock()
	lost := b.lost[key]
	b.mu.Unlock()
	if lost {
		return "", fail(op, key, Lost)
	}
	f, _ := b.pick(faults)
	switch f {
	case "", Cut, Broken, Flipped:
		return f, nil
	case Lost:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lost[key] = true
	default: // the call fails, and nothing stays behind
	}
	return f, fail(op, key, f)
}

// spoil gives bytes as they come over a bad wire.
func (b *Bucket) spoil(data []byte, f Fault) []byte {
	switch {
	case len(data) == 0:
	case f == Cut || f == Broken:
		data = data[:b.intN(len(data))]
	case f == Flipped:
		data = slices.Clone(data)
		data[b.intN(len(data))] ^= 1 << b.intN(8)
	}
	return data
}

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	f, err := b.read("get", key, ofReads)
	if err != nil {
		return nil, err
	}
	r, err := b.next.Get(ctx, key)
	if err != nil || f == "" {
		return r, err
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	var end io.Reader = strings.NewReader("")
	if f == Broken {
		end = failing{fail("get", key, f)}
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(b.spoil(data, f)), end)), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// GetTagged implements bucket.Conditional.
func (b *Bucket) GetTagged(ctx context.Context, key string) ([]byte, string, error) {
	f, err := b.read("get", key, ofReads)
	if err != nil {
		return nil, "", err
	}
	data, tag, err := b.next.GetTagged(ctx, key)
	if err == nil && f == Broken {
		err = fail("get", key, f)
	}
	if err != nil {
		return nil, "", err
	}
	return b.spoil(data, f), tag, nil
}

// Stat implements bucket.Bucket.
func (b *Bucket) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if _, err := b.read("stat", key, ofStats); err != nil {
		return bucket.Info{}, err
	}
	return b.next.Stat(ctx, key)
}

// List implements bucket.Bucket. A fault comes at the beginning or in the middle.
func (b *Bucket) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	f, _ := b.pick(ofLists)
	if f == "" {
		return b.next.List(ctx, prefix, fn)
	}
	var all []bucket.Info
	if err := b.next.List(ctx, prefix, func(i bucket.Info) error {
		all = append(all, i)
		return nil
	}); err != nil {
		return err
	}
	var end error
	if f == Stale {
		all = b.stale(all, prefix)
	} else {
		all, end = all[:b.intN(len(all)+1)], fail("list", prefix, f)
	}
	for _, i := range all {
		if err := fn(i); err != nil {
			return err
		}
	}
	return end
}

// stale undoes some of the last changes.
func (b *Bucket) stale(all []bucket.Info, prefix string) []bucket.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.changes) == 0 {
		return all
	}
	for _, c := range slices.Backward(b.changes[b.rand.IntN(len(b.changes)):]) {
		all = slices.DeleteFunc(all, func(i bucket.Info) bool { return i.Key == c.Key })
		if c.deleted && strings.HasPrefix(c.Key, prefix) {
			all = append(all, c.Info)
		}
	}
	slices.SortFunc(all, func(a, b bucket.Info) int { return strings.Compare(a.Key, b.Key) })
	return all
}
