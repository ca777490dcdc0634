package move

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// This file retires units of several batches together, in rounds: before a removal the metadata of
// all that is in the namespaces of the units is listed, however many other workload clusters these
// have.

const (
	// listShare is how many times as long as the lists of a round took the next one waits for further
	// batches, up to longestGather, while these are to come.
	listShare     = 20
	longestGather = time.Minute
)

// leaving is a batch in a round.
type leaving struct {
	*batch
	healthy []restore.Unit // those that are retired
	list    *versions      // what the lists of the round show of the batch
	// owned are the objects that units of the batch own by these lists, and that may stay.
	owned map[object.Ref]bool
	done  chan struct{}
}

// rounds are the rounds of a run.
type rounds struct {
	turn chan struct{} // has room for one round
	wake chan struct{} // has room for one: the next round may begin earlier by now

	mu      sync.Mutex
	waiting []*leaving
	next    time.Time // of the next round
	// most is how many units a round has at most, unless one batch has more: all of their removals
	// begin right after the lists. Once as many wait, they are retired.
	most int
	// gathers: further batches are to come. canary is retired at once.
	gathers bool
	canary  string
	// told are the warnings of rounds that were reported; it belongs to the round that has its turn.
	told map[string]bool
}

func newRounds(t restore.Tuning) *rounds {
	return &rounds{turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), canary: t.Canary,
		most: 2 * t.Concurrency, told: map[string]bool{}}
}

func (r *rounds) add(l *leaving) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, l)
	r.poke()
}

// gather says whether further batches are to come.
func (r *rounds) gather(gathers bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gathers = gathers
	r.poke()
}

func (r *rounds) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// due returns in what time the next round may begin, and whether there is one.
func (r *rounds) due() (in time.Duration, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	units, canary := 0, false
	for _, l := range r.waiting {
		units += len(l.healthy)
		canary = canary || slices.ContainsFunc(l.healthy,
			func(u restore.Unit) bool { return u.Name == r.canary })
	}
	if !r.gathers || canary || units >= r.most {
		return 0, units > 0
	}
	return time.Until(r.next), units > 0
}

// await waits until the next round may begin, and reports whether there is one.
func (r *rounds) await(ctx context.Context) bool {
	for {
		in, is := r.due()
		if !is || in <= 0 {
			return is && ctx.Err() == nil
		}
		select {
		case <-time.After(in):
		case <-r.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// take returns the batches of the next round, in the order in which they came.
func (r *rounds) take() []*leaving {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, units := 0, 0
	for n < len(r.waiting) && (n == 0 || units+len(r.waiting[n].healthy) <= r.most) {
		units += len(r.waiting[n].healthy)
		n++
	}
	taken := r.waiting[:n:n]
	r.waiting = slices.Clone(r.waiting[n:])
	return taken
}

// ended notes how long the lists of a round took. After one in which a unit failed the next one
// waits for nothing: what is wrong with the source shows on few workload clusters.
func (r *rounds) ended(took time.Duration, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = time.Time{}
	if !failed {
		r.next = time.Now().Add(min(listShare*took, longestGather))
	}
}

// retire deletes on the source the units that are healthy on the target, in a round. It returns
// once they are retired, or have failed, or ctx ends.
func (m *run) retire(ctx context.Context, b *batch, healthy []restore.Unit) {
	if len(healthy) == 0 || ctx.Err() != nil {
		return
	}
	l := &leaving{batch: b, healthy: healthy, done: make(chan struct{})}
	m.rounds.add(l)
	for {
		select {
		case <-l.done:
			return
		case <-ctx.Done():
			return
		case m.rounds.turn <- struct{}{}:
			if !l.isDone() {
				m.retireRound(ctx)
			}
			<-m.rounds.turn
		}
	}
}

func (l *leaving) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// retireRound waits for the next round, and retires its units.
func (m *run) retireRound(ctx context.Context) {
	if !m.rounds.await(ctx) {
		return
	}
	m.quiet.RLock()
	defer m.quiet.RUnlock()
	round := m.rounds.take()
	m.armLeaving(ctx, round)
	began, listed := time.Now(), time.Now()
	err := task.Call(func() error {
		if err := m.pausePools(ctx); err != nil { // when it failed as the run began
			return err
		}
		blocked, err := m.lookBeforeRetirement(ctx, round)
		listed = time.Now()
		if err != nil {
			return fmt.Errorf("find what the garbage collector would delete: %w", err)
		}
		m.retireUnits(ctx, round, m.lateInRound(ctx, round, blocked))
		return nil
	})
	failed := false
	for _, l := range round {
		left := m.notRetired(l.healthy)
		if err != nil {
			m.failAll(ctx, left, err)
		}
		failed = failed || len(left) > 0
		m.settle(l.batch)
		close(l.done)
	}
	m.rounds.ended(listed.Sub(began), failed)
}

// lateInRound returns, by unit, why units of a round must not be retired. It takes out of the
// others what has to stay (late).
func (m *run) lateInRound(ctx context.Context, round []*leaving,
	blocked map[string][]object.Finding) map[string]error {
	errs := map[string]error{}
	for _, l := range round {
		var late map[string]error
		l.healthy, late = m.late(ctx, l.batch, l.healthy, l.list)
		for _, u := range l.healthy {
			errs[u.Name] = late[u.Name]
			if findings := blocked[u.Name]; errs[u.Name] == nil && len(findings) > 0 {
				errs[u.Name] = &restore.FindingsError{Findings: findings}
			}
		}
	}
	return errs
}

// retireUnits removes the units of a round without an error, all at once, and fails the others.
func (m *run) retireUnits(ctx context.Context, round []*leaving, errs map[string]error) {
	var g task.Group
	for _, l := range round {
		for _, u := range l.healthy {
			g.Go(func() error {
				err := errs[u.Name]
				if err == nil {
					err = task.Call(func() error { return m.retireUnit(ctx, l.batch, u, l.owned) })
				}
				if err != nil {
					m.fail(ctx, u.Name, fmt.Errorf("retire: %w", err))
					return nil
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				m.results.retired[u.Name] = true
				delete(m.switched, u.Name)
				return nil
			})
		}
	}
	g.Finish()
}

// notRetired returns those of units that are not retired.
func (m *run) notRetired(units []restore.Unit) []restore.Unit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(units),
		func(u restore.Unit) bool { return m.results.retired[u.Name] })
}

// lookBeforeRetirement takes out of the units of a round what others have come to use elsewhere,
// notes what is listed for each batch, and returns, by unit, findings for the objects that the
// garbage collector would delete with them.
func (m *run) lookBeforeRetirement(ctx context.Context, round []*leaving) (
	map[string][]object.Finding, error) {
	var all []restore.Unit
	for _, l := range round {
		all = append(all, l.healthy...)
	}
	all, err := m.leaveKept(ctx, all)
	if err == nil {
		all, err = m.keepUsedElsewhere(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	lists := roundLists{Reader: m.Source.Reader}
	for _, l := range round {
		l.healthy, all = all[:len(l.healthy):len(l.healthy)], all[len(l.healthy):]
		l.list = &versions{of: l.Source, units: map[string]bool{}, users: l.users, rows: m.Rows,
			kinds: m.Source.Kinds, seen: map[string]string{}, created: map[string][]string{},
			alone: map[object.Ref][]graph.Need{}}
		for _, u := range l.healthy {
			l.list.units[u.Name] = true
		}
		lists.of = append(lists.of, l.list)
	}
	return m.cascades(ctx, lists, round)
}

// roundLists is a Reader whose lists are noted for each batch of a round.
type roundLists struct {
	*kube.Reader
	of []*versions
}

// List implements restore.Reader.
func (r roundLists) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	return r.Reader.List(ctx, k, o, func(raw []byte) error {
		metadata := gjson.GetBytes(raw, "metadata")
		ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: metadata.Get("namespace").String(),
			Name: metadata.Get("name").String()}
		key := ref.String()
		for _, v := range r.of {
			v.note(ref, key, metadata)
		}
		return fn(raw)
	})
}

// tell reports a warning, once in a run: an API that has stopped answering may have objects that
// the garbage collector deletes with a unit, once it answers again.
func (r *rounds) tell(ctx context.Context, j *catalog.Journal, f object.Finding) {
	if !r.told[f.Message] {
		r.told[f.Message] = true
		_ = j.Emit(context.WithoutCancel(ctx), catalog.FindingEvent("", f))
	}
}

// cascades returns, by unit, findings for the objects that the garbage collector would delete with
// the units of a round. It lists the source once for all of them.
func (m *run) cascades(ctx context.Context, lists roundLists, round []*leaving) (
	map[string][]object.Finding, error) {
	toDelete, planned, unitOf := m.leavingIn(round)
	findings, err := restore.Dependants(ctx, lists, toDelete, planned,
		func(r object.Ref) string { return unitOf[r] })
	byUnit := map[string][]object.Finding{}
	for _, f := range findings {
		switch {
		case f.Severity < object.Error:
			m.rounds.tell(ctx, m.Journal, f)
		case f.Unit != "":
			for _, unit := range append(slices.Clone(f.Users), f.Unit) {
				byUnit[unit] = append(byUnit[unit], f)
			}
		case f.Code == object.CodeNotAllowed: // it may be about any of them
			for _, l := range round {
				for _, u := range l.healthy {
					byUnit[u.Name] = append(byUnit[u.Name], f)
				}
			}
		}
	}
	return byUnit, err
}

// leavingIn returns the objects that a round deletes, by UID, and the units. planned says whether
// the batch of an owner takes an object off the source together with it, or this owner off it, and
// notes what is owned.
func (m *run) leavingIn(round []*leaving) (toDelete map[string]object.Ref,
	planned func(ref, owner object.Ref) bool, unitOf map[object.Ref]string) {
	toDelete, unitOf = map[string]object.Ref{}, map[object.Ref]string{}
	leaves, batchOf := map[*leaving]map[object.Ref]bool{}, map[object.Ref]*leaving{}
	for _, l := range round {
		of := map[object.Ref]bool{}
		leaves[l], l.owned = of, map[object.Ref]bool{}
		for _, u := range l.healthy {
			for _, o := range u.Objects {
				unitOf[o.Ref] = u.Name
				v, ok := l.Source[o.Ref.String()]
				if ok && o.Action != restore.Skip {
					toDelete[v.UID], batchOf[o.Ref] = o.Ref, l
				}
				of[o.Ref] = ok // what others have come to use stays, and loses its owners in the unit
			}
		}
		for _, o := range l.Copy.Shared.Objects {
			// it is on the target; here it loses an owner, or goes too
			of[o.Ref] = o.Action != restore.Skip
		}
	}
	isOurs := func(r object.Ref) bool { return unitOf[r] != "" }
	var mu sync.Mutex
	return toDelete, func(ref, owner object.Ref) bool {
		of := batchOf[owner]
		mu.Lock()
		of.owned[ref] = true
		mu.Unlock()
		return leaves[of][ref] || isLock(m.Rows, ref, isOurs)
	}, unitOf
}
