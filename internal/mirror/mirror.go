package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
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
	// Unable is called once when the run goes on without records: the store refuses the first one, or
	// the operator gives up the mirror. What is known before that is in the plan (Findings).
	Unable func(error)
	// GiveUp: the operator wants the run to go on when the store takes no more records, and has made
	// sure that no other host takes the operation over. It is heeded only where the newest record is
	// of this host.
	GiveUp bool
}

// Mirror writes the records of one run of an operation. It may be used concurrently.
type Mirror struct {
	Options
	id    catalog.OperationID
	state catalog.MirrorState // guarded by slot, as are the next six

	feed   *catalog.Feed // nil before the first record
	queue  []piece       // changes that no record holds yet
	sealed *store.OperationRecord
	// sealedAt is when the record in sealed was made.
	sealedAt time.Time
	runs     int // the number of the run in the newest record that has it, up to the sealed one
	unable   bool
	taken    int64 // how many changes of the feed are in the queue or in records

	slot chan struct{} // held while records are written

	mu      sync.Mutex
	fenced  *FencedError
	bug     error     // a panic of the goroutine that writes regularly
	written time.Time // when the store last took a record, or had none of another host
	stored  int64     // how many changes of the feed the store has; -1 before all else is there

	stop    context.CancelFunc
	running task.Group
}

// piece is a change as it is in a record.
type piece struct {
	text  []byte            // JSON
	state catalog.Operation // for the head; the ID is empty when the change does not have it
	whole bool              // begins a whole record
}

// Begin prepares the records of a run. It writes nothing: the first record is written before the
// first step. Errors: *FencedError when another host has taken over since the last run;
// *RemovedError and *UnwritableError, unless GiveUp; those of the store and the catalog.
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
	m := &Mirror{Options: o, id: id, state: state, slot: make(chan struct{}, 1),
		stored: -1}
	if m.unable, err = m.check(ctx); err != nil || m.unable {
		return m, err
	}
	// Without the end of ctx, which is that of a request.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.running.Go(func() error {
		err := task.Call(func() error { m.writeRegularly(background); return nil })
		m.mu.Lock()
		defer m.mu.Unlock()
		m.bug = err
		return err
	})
	return m, nil
}

// check reports whether the run has to go on without records. It makes sure that it may.
func (m *Mirror) check(ctx context.Context) (unable bool, err error) {
	unwritable := m.Store.CanRecord(ctx)
	if unwritable != nil && !IsUnable(unwritable) {
		return false, fmt.Errorf("continue the mirror of operation %s: %w", m.id, unwritable)
	}
	if m.state.Seq == 0 && m.state.Next == "" {
		return unwritable != nil, nil
	}
	m.state, err = CatchUp(ctx, m.Store, m.id, m.state)
	if _, removed := errors.AsType[*RemovedError](err); removed && m.GiveUp {
		unwritable, err = err, nil
	}
	if err != nil {
		return false, err
	}
	if m.GiveUp {
		if err := m.outbid(ctx); err != nil {
			return false, err
		}
	}
	if unwritable == nil {
		return false, nil
	}
	return true, m.giveUp(ctx, unwritable)
}

// CatchUp compares what this catalog knows of a mirror with the store. It returns the state with
// the record that this host wrote last, even if it died before it knew. Errors: *FencedError when
// the store has records of another host; *RemovedError when it lacks records that this host wrote;
// those of the store.
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
			state.Seq, state.Last = last, state.Next
		}
	}
	state.Next = ""
	switch {
	case last > state.Seq:
		return state, fencedBy(ctx, st, id)
	case last < state.Seq:
		return state, &RemovedError{Operation: id, Newest: last, Wrote: state.Seq}
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
	return catalog.JournalOptions{OnStep: m.onStep, Sync: m.Sync, Alive: m.alive}
}

// alive makes sure that no other host has taken over, when the newest record is old. It writes what
// there is to write, and otherwise reads the next number.
func (m *Mirror) alive(ctx context.Context) error {
	m.mu.Lock()
	feed, written := m.feed, m.written
	m.mu.Unlock()
	if err := m.lost(); err != nil || feed == nil || !isOld(written) {
		return err
	}
	if err := m.Sync(ctx); err != nil {
		return err
	}
	select {
	case m.slot <- struct{}{}:
		defer func() { <-m.slot }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m.mu.Lock()
	written = m.written
	m.mu.Unlock()
	if !isOld(written) || m.unable {
		return nil
	}
	return m.checkNext(ctx)
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
	feed, written, stored := m.feed, m.written, m.stored
	m.mu.Unlock()
	if feed == nil || feed.NewestPlan() > stored || r.State == catalog.StepUndoing {
		return false
	}
	if r.Attempts > 1 { // the store may have it as undone, which a rollback elsewhere skips
		return false
	}
	if isOld(written) { // a host that was suspended may have lost its place
		return false
	}
	for _, phase := range harmless {
		if r.Step.Phase == phase || strings.HasPrefix(r.Step.Phase, phase+"-b") {
			return true
		}
	}
	return false
}

// isOld reports whether a record was written too long ago to rely on it that no other host has
// taken over. Round removes the monotonic clock, which may stop while a host sleeps.
func isOld(written time.Time) bool {
	age := time.Since(written.Round(0))
	return age > 2*interval || age < 0
}

func (m *Mirror) lost() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fenced != nil {
		return m.fenced
	}
	return m.bug
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
	if wanted >= 0 && wanted <= m.storedCount() {
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
	m.mu.Lock()
	m.stored = m.taken
	m.mu.Unlock()
	return nil
}

// storedCount returns how many changes of the feed are in the store.
func (m *Mirror) storedCount() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored
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
	if err := m.running.Wait(); err != nil {
		return err // what it held may be broken
	}
	m.mu.Lock()
	feed := m.feed
	m.mu.Unlock()
	if feed == nil {
		return nil
	}
	defer feed.Close()
	if m.lost() != nil || m.unable {
		return nil
	}
	if err := m.Sync(ctx); err != nil {
		return err
	}
	return m.Catalog.SetMirror(ctx, m.id, m.state)
}
