package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/seal"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Limits of packs. They are part of the format.
type Limits struct {
	Target     int64 // bytes of the uncompressed tar after which a pack is finished
	MaxObject  int64 // bytes of one object; etcd accepts a tenth of that
	MaxEntries int   // files in one pack
}

// FormatLimits are the limits of docs/format.md.
func FormatLimits() Limits {
	return Limits{Target: 16 << 20, MaxObject: 16 << 20, MaxEntries: 1 << 15}
}

// uploads is how many packs are uploaded at a time: two fill a link while the next pack is written,
// and bound memory to about four packs.
const uploads = 2

// Writer writes objects into packs and the packs to the store. Only compressed and encrypted
// bytes are buffered, never more than about four packs. All methods may be called concurrently.
// Packs of a writer that fails or is aborted may stay in the store; nothing names them.
type Writer struct {
	o      Options
	cancel context.CancelCauseFunc
	ctx    context.Context // of NewWriter; ends the uploads
	group  *task.Group

	mu     sync.Mutex
	enc    *zstd.Encoder
	pack   *unfinished // being filled, or nil
	packs  []layout.Stored
	err    error // why the writer is of no more use
	closed bool  // no more Add
	done   bool  // Close succeeded: all packs are durable
}

// Ref says which pack an object is in. Objects of one pack share it.
type Ref struct {
	writer *Writer
	key    layout.Key
}

// Key returns the pack's key, or "" as long as Close has not returned nil: before that nobody may
// name the pack.
func (r *Ref) Key() layout.Key {
	r.writer.mu.Lock()
	defer r.writer.mu.Unlock()
	if !r.writer.done {
		return ""
	}
	return r.key
}

type unfinished struct {
	ref    *Ref
	stored bytes.Buffer
	sealer *seal.Writer
	tar    *tar.Writer
	size   int64 // of the tar so far
	names  map[string]bool
}

// Options of a Writer.
type Options struct {
	// ModTime becomes the time of all files in the packs, in whole seconds.
	ModTime time.Time
	Limits  Limits
	// Encrypt is nil in a plain store.
	Encrypt seal.Encrypter
	// Put stores a finished pack.
	Put func(ctx context.Context, key layout.Key, stored []byte) error
}

// NewWriter begins to write packs. The context also ends the uploads in the background. The caller
// ends it with Close, or with Abort, which may follow Close.
func NewWriter(ctx context.Context, o Options) (*Writer, error) {
	enc, err := seal.NewEncoder()
	if err != nil {
		return nil, fmt.Errorf("begin packs: %w", err)
	}
	o.ModTime = o.ModTime.UTC().Truncate(time.Second)
	ctx, cancel := context.WithCancelCause(ctx)
	group, ctx := task.WithContext(ctx)
	group.SetLimit(uploads)
	return &Writer{o: o, cancel: cancel, ctx: ctx, group: group, enc: enc}, nil
}

// ErrClosed is the error of an Add after Close or Abort.
var ErrClosed = errors.New("add to pack: the writer is closed")

// Add puts an object into the pack that is being filled; name is from EntryName. The body is
// copied, and waits when uploads are slow. A name may come again, as when an object changes while
// it is captured: each is in another pack. It refuses a bad name and more than 16 MiB; the writer
// goes on after those. An error of an upload ends the writer.
func (w *Writer) Add(name string, body []byte) (*Ref, error) {
	if _, err := ParseEntryName(name); err != nil {
		return nil, err
	}
	if most := w.o.Limits.MaxObject; int64(len(body)) > most {
		return nil, fmt.Errorf("add %s to pack: it has %d bytes, more than the %d of the format", name,
			len(body), most)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	if err := w.failed(); err != nil {
		return nil, err
	}
	ref, err := w.add(name, body)
	if err != nil {
		w.err = fmt.Errorf("add %s to pack: %w", name, err)
		return nil, w.err
	}
	return ref, nil
}

// failed returns why the writer is of no more use, also when that happened in the background.
func (w *Writer) failed() error {
	if w.err == nil && w.ctx.Err() != nil {
		w.err = context.Cause(w.ctx)
	}
	return w.err
}

func (w *Writer) add(name string, body []byte) (*Ref, error) {
	// A header has one block, three when the name is long.
	need := int64(3*512) + int64(len(body)+511)/512*512
	if w.pack != nil && (w.pack.names[name] || w.pack.size+need > w.o.Limits.Target ||
		len(w.pack.names) == w.o.Limits.MaxEntries) {
		if err := w.cut(); err != nil {
			return nil, err
		}
	}
	if w.pack == nil {
		if err := w.begin(); err != nil {
			return nil, err
		}
	}
	p := w.pack
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o600,
		ModTime: w.o.ModTime}
	if err := p.tar.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := p.tar.Write(body); err != nil {
		return nil, err
	}
	p.names[name] = true
	p.size += need
	return p.ref, nil
}

func (w *Writer) begin() error {
	p := &unfinished{ref: &Ref{writer: w}, names: map[string]bool{}}
	var err error
	if p.sealer, err = seal.NewWriter(&p.stored, w.enc, w.o.Encrypt, seal.UniqueFrame()); err != nil {
		return err
	}
	p.tar = tar.NewWriter(p.sealer)
	w.pack = p
	return nil
}

// cut ends the pack that is being filled and uploads it in the background. It waits while as many
// as allowed are on their way.
func (w *Writer) cut() error {
	p := w.pack
	w.pack = nil
	if err := errors.Join(p.tar.Close(), p.sealer.Close()); err != nil {
		return err
	}
	stored := p.stored.Bytes()
	key := layout.KeyOf(layout.KindPack, w.o.Encrypt != nil, stored)
	p.ref.key = key
	w.packs = append(w.packs, layout.Stored{Key: key, Size: int64(len(stored))})
	w.group.Go(func() error { return w.o.Put(w.ctx, key, stored) })
	return nil
}

// Close uploads the last pack and waits for all; when it returns nil, all packs are durable and
// every Ref has its key. It may be called again and returns the same.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.failed() == nil && w.pack != nil {
		w.err = w.cut()
	}
	w.end()
	w.done = w.err == nil
	return w.err
}

// Abort gives up what is not uploaded and waits for the background to end. After Close it does
// nothing, so it can be deferred.
func (w *Writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	w.err = errors.New("write packs: aborted")
	w.cancel(w.err)
	w.end()
}

func (w *Writer) end() {
	if err := w.group.Wait(); err != nil && w.err == nil {
		w.err = err
	}
	w.cancel(nil)
	w.enc.Reset(nil) // ends its goroutines when a pack was left half-filled
	w.pack = nil
}

// Packs returns what was written, in order; nil unless Close returned nil.
func (w *Writer) Packs() []layout.Stored {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		return nil
	}
	return w.packs
}
