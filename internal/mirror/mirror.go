package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// interval is the time between two records that nothing waits for. It is how long a host that was
// fenced out goes on with harmless steps.
const interval = 5 * time.Second

// harmless are the phases that may begin before they are in the store: another host repeats them
// without knowing of it. A phase that is not listed is dangerous. Names may end in the number of a
// batch.
var harmless = []string{"create", "owners", "cluster-status", "verify-shared", "post-flight"}

// Options of Begin.
type Options struct {
	Catalog *catalog.Catalog
	Store   *store.Store
	// Host is the name of this host in records; os.Hostname when it is empty.
	Host string
	// Lost is called once when another host has taken over; the run has to stop.
	Lost func(*FencedError)
	// Unable is called once when the store refuses the first record. What is known before that is
	// in the plan (Findings).
	Unable func(error)
}

// Mirror writes the records of one run of an operation. It may be used concurrently.
type Mirror struct {
	Options
	id    catalog.OperationID
	state catalog.MirrorState // guarded by slot, as are the next six

	feed   *catalog.Feed // nil before the first record
	queue  []piece       // changes that no record holds yet
	sealed *store.OperationRecord
	unable bool
	// taken and stored are how many changes of the feed are in the queue or in records, and in
	// records.
	taken, stored int64

	slot chan struct{} // held while records are written

	mu      sync.Mutex
	fenced  *FencedError
	written time.Time // when the store last took a record

	stop    context.CancelFunc
	running sync.WaitGroup
}

// piece is a change as it is in a record.
type piece struct {
	text  json.RawMessage
	state catalog.Operation // for the head; the ID is empty when the change does not have it
	whole bool              // begins a whole record
}

// Begin prepares the records of a run. It writes nothing: the first record is written before the
// first step. Errors: *FencedError when another host has taken over since the last run; what keeps
// the store from taking records (store.CanRecord) for an operation that has some already; those of
// the store and the catalog.
func Begin(ctx context.Context, id catalog.OperationID, o Options) (*Mirror, error) {
	if o.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name of this host: %w", err)
		}
		o.Host = host
	}
	state, err := o.Catalog.Mirror(ctx, id)
	if err != nil {
		return nil, err
	}
	m := &Mirror{Options: o, id: id, state: state, slot: make(chan struct{}, 1)}
	mirrored := state.Seq > 0 || state.Next != ""
	if err := o.Store.CanRecord(ctx); err != nil {
		if mirrored || !IsUnable(err) {
			return nil, fmt.Errorf("continue the mirror of operation %s: %w", id, err)
		}
		m.unable = true
		return m, nil
	}
	if mirrored {
		if m.state, err = CatchUp(ctx, o.Store, id, state); err != nil {
			return nil, err
		}
	}
	// Without the end of ctx, which is that of a request.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.running.Go(func() { m.writeRegularly(background) })
	return m, nil
}

// CatchUp compares what this catalog knows of a mirror with the store. It returns the state with
// the record that this host wrote last, even if it died before it knew. *FencedError when the
// store has records of another host.
func CatchUp(ctx context.Context, st *store.Store, id catalog.OperationID,
	state catalog.MirrorState) (catalog.MirrorState, error) {
	keys, err := st.OperationRecords(ctx, string(id))
	if err != nil {
		return state, err
	}
	last := int64(0)
	if len(keys) > 0 {
		last = keys[len(keys)-1].Seq
	}
	if last == state.Seq+1 && state.Next != "" {
		ours, err := st.HasOperationRecord(ctx, keys[len(keys)-1], state.Next)
		if err != nil {
			return state, err
		}
		if ours {
			state.Seq = last
		}
	}
	state.Next = ""
	switch {
	case last > state.Seq:
		return state, fencedBy(ctx, st, id)
	case last < state.Seq:
		return state, fmt.Errorf("mirror of operation %s: the store has records up to %d, "+
			"this host wrote "+
			"%d: some were removed, and another host could not be fenced out", id, last, state.Seq)
	}
	return state, nil
}

// fencedBy names the host that wrote the newest record.
func fencedBy(ctx context.Context, st *store.Store, id catalog.OperationID) *FencedError {
	e := &FencedError{Operation: id}
	if found, err := Newest(ctx, st, id); err == nil {
		e.Host, e.Time = found.Head.Host, found.Head.Time
	}
	return e
}

// Journal returns the options of the journal of the run.
func (m *Mirror) Journal() catalog.JournalOptions {
	return catalog.JournalOptions{OnStep: m.onStep, Sync: m.Sync}
}

// onStep writes the record of a step that must not begin without it.
func (m *Mirror) onStep(ctx context.Context, r catalog.StepRecord) error {
	if r.State != catalog.StepBegun && r.State != catalog.StepUndoing {
		return nil // it has ended
	}
	if err := m.lost(); err != nil {
		return err
	}
	if m.mayWait(r) {
		return nil
	}
	return m.Sync(ctx)
}

// mayWait reports whether a step may begin before its record is in the store.
func (m *Mirror) mayWait(r catalog.StepRecord) bool {
	m.mu.Lock()
	feed, written := m.feed, m.written
	m.mu.Unlock()
	if feed == nil || feed.HasDocument() || r.State == catalog.StepUndoing {
		return false
	}
	// A host that was suspended may have lost its place. Round removes the monotonic clock, which
	// may stop while a host sleeps.
	if age := time.Since(written.Round(0)); age > 2*interval || age < 0 {
		return false
	}
	for _, phase := range harmless {
		if r.Step.Phase == phase || strings.HasPrefix(r.Step.Phase, phase+"-b") {
			return true
		}
	}
	return false
}

func (m *Mirror) lost() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fenced != nil {
		return m.fenced
	}
	return nil
}

// Sync writes all that the catalog has of the operation and the store has not. Calls at the same
// time share records. Errors: *FencedError, from then on in every call; those of the store and the
// catalog, after which the next call tries again.
func (m *Mirror) Sync(ctx context.Context) error {
	m.mu.Lock()
	feed := m.feed
	m.mu.Unlock()
	wanted := int64(-1) // all
	if feed != nil {
		wanted = feed.Count()
	}
	select {
	case m.slot <- struct{}{}:
		defer func() { <-m.slot }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := m.lost(); err != nil || m.unable {
		return err
	}
	if wanted >= 0 && wanted <= m.stored {
		return nil // another call has written it meanwhile
	}
	if err := m.take(ctx); err != nil {
		return err
	}
	for m.sealed != nil || len(m.queue) > 0 {
		if m.sealed == nil {
			if err := m.seal(ctx); err != nil {
				return err
			}
		}
		if err := m.put(ctx); err != nil || m.unable {
			return err
		}
	}
	m.stored = m.taken
	return nil
}

// take appends what the catalog has written since the last call to the queue.
func (m *Mirror) take(ctx context.Context) error {
	var changes []catalog.Change
	whole := m.feed == nil
	if whole {
		all, feed, err := m.Catalog.Follow(ctx, m.id)
		if err != nil {
			return err
		}
		changes = []catalog.Change{all}
		m.mu.Lock()
		m.feed = feed
		m.mu.Unlock()
	} else {
		changes, m.taken = m.feed.Take()
	}
	for _, change := range changes {
		pieces, err := divide(change, whole)
		if err != nil {
			return err // does not happen: all of it was decoded
		}
		m.queue = append(m.queue, pieces...)
	}
	return nil
}

// seal makes the next record from the beginning of the queue, and notes its hash, by which this
// host knows its own record after a crash.
func (m *Mirror) seal(ctx context.Context) error {
	batch, left := m.queue[:1], m.queue[1:]
	size := len(batch[0].text)
	for len(left) > 0 && !left[0].whole && size+len(left[0].text) <= mostText {
		size += len(left[0].text)
		batch, left = m.queue[:len(batch)+1], left[1:]
	}
	text, err := json.Marshal(recordText(batch, len(left) > 0))
	if err != nil {
		return err
	}
	op, err := m.Catalog.Operation(ctx, m.id)
	if err != nil {
		return err
	}
	head := store.OperationHead{Host: m.Host, Time: time.Now(), Kind: string(op.Kind),
		State: string(op.State), Source: op.Source.Name, Target: op.Target.Name, Snapshot: op.SnapshotID,
		Final: op.State.Final(), Whole: batch[0].whole}
	for _, p := range batch {
		if p.state.ID != "" {
			head.State, head.Final = string(p.state.State), p.state.State.Final()
		}
	}
	sealed, err := m.Store.SealOperationRecord(string(m.id), m.state.Seq+1, head, text)
	if err != nil {
		return err
	}
	state := m.state
	state.Next = sealed.SHA256
	if err := m.Catalog.SetMirror(ctx, m.id, state); err != nil {
		return err
	}
	m.state, m.sealed, m.queue = state, &sealed, left
	return nil
}

// put writes the sealed record.
func (m *Mirror) put(ctx context.Context) error {
	err := m.Store.PutOperationRecord(ctx, *m.sealed)
	switch {
	case err == nil:
		m.state.Seq, m.state.Next, m.sealed = m.state.Seq+1, "", nil
		m.mu.Lock()
		m.written = time.Now()
		m.mu.Unlock()
		return nil
	case errors.Is(err, store.ErrExists):
		fenced := fencedBy(ctx, m.Store, m.id)
		m.mu.Lock()
		m.fenced = fenced
		m.mu.Unlock()
		m.Lost(fenced)
		return fenced
	case m.state.Seq == 0 && errors.Is(err, store.ErrDenied):
		// Nothing can be written there: no other host will find the operation, and none is fenced
		// out.
		m.unable = true
		m.Catalog.Unfollow(m.id)
		m.Unable(err)
		return m.Catalog.SetMirror(ctx, m.id, catalog.MirrorState{Imported: m.state.Imported})
	}
	return fmt.Errorf("mirror operation %s: %w", m.id, err)
}

// writeRegularly writes what nothing waits for. An error is that of the next call that waits.
func (m *Mirror) writeRegularly(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.mu.Lock()
		feed := m.feed
		m.mu.Unlock()
		if feed != nil && !feed.IsEmpty() {
			_ = m.Sync(ctx)
		}
	}
}

// Confirm writes what a run that has begun left to be written. A run that was taken over and did
// not notice ends with a *FencedError then. Call it before the end of the run is recorded.
func (m *Mirror) Confirm(ctx context.Context) error {
	m.mu.Lock()
	began := m.feed != nil
	m.mu.Unlock()
	if !began {
		return nil
	}
	return m.Sync(ctx)
}

// Close writes the rest, which has the end of the run. It writes nothing for a run that began no
// step. An error says that the store does not know of the end.
func (m *Mirror) Close(ctx context.Context) error {
	if m.stop == nil {
		return nil
	}
	m.stop()
	m.running.Wait()
	defer m.Catalog.Unfollow(m.id)
	m.mu.Lock()
	began := m.feed != nil
	m.mu.Unlock()
	if !began || m.lost() != nil || m.unable {
		return nil
	}
	if err := m.Sync(ctx); err != nil {
		return err
	}
	return m.Catalog.SetMirror(ctx, m.id, m.state)
}
