package move

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// batch is what was planned for units once they were paused. It is stored: a resume carries out the
// stored plan.
type batch struct {
	Number   int    `json:"number"`
	Snapshot string `json:"snapshot"` // its id
	// Copy is the plan of the copy.
	Copy restore.Plan `json:"copy"`
	// Source are the states of the source objects that the copy is made from, by ref.
	Source map[string]objectState `json:"source"`

	contents *snapshot.Contents // not stored: load reads it from the source again
	before   *snapshot.Contents // of the pre-copy; not stored
	// captures are those of its units without their neighbours; nil when its snapshot has these, and
	// after a resume.
	captures *captureCache
	users    *users // as the group of its units knows them; nil after a resume
	// copiedBy are the batches of its objects, in a batch that is put together of others.
	copiedBy map[object.Ref]*batch
	ids      *store.ContentIDs // nil without a signing key
}

// objectState identifies a source object at a point in time, so that a later change of it is
// noticed before the hand-over.
type objectState struct {
	Unit            string `json:"unit,omitempty"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	// Content is set for a Cluster only, whose resourceVersion our lock changes in each run, and for
	// what is paused first, whose controller may publish later that its Cluster is paused, too. It is
	// an id of the content without that.
	Content string `json:"content,omitempty"`
	// Desired is an id of what users write of an object (desired), so that a later write is noticed
	// before its removal. Batches of older versions have none, nor has a Binding, which its
	// controller alone writes, also after its Cluster is gone; nor a unit that is retired.
	Desired string `json:"desired,omitempty"`
	// NoFinalizers: it had none in this version. It is known of shared objects, and of those that
	// have Desired.
	NoFinalizers bool `json:"noFinalizers,omitempty"`
	// Written is set for a Cluster only: when it was last written to, by the clock of the source
	// (lastWrite). That is its pause, or later. Batches of older versions have none.
	Written time.Time `json:"written,omitzero"`
}

func batchName(number int) string { return fmt.Sprintf("batch-%03d", number) }

// suffix ends the names of steps that belong to no unit, so that each batch has its own.
func (b *batch) suffix() string { return fmt.Sprintf("-b%d", b.Number) }

// loadBatches reads the batches that earlier runs planned.
func (m *run) loadBatches(ctx context.Context) error {
	return m.eachStored(ctx, batchName, func(b *batch) error {
		if err := b.setIDs(m.Store); err != nil {
			return err
		}
		if err := m.leaveReturned(ctx, b); err != nil {
			return err
		}
		for unit := range m.results.retired {
			b.forget(unit)
		}
		m.batches = append(m.batches, b)
		return nil
	})
}

// eachStored calls fn for the stored batches, or pre-copies, that name gives the names of, from
// number 1 on.
func (m *run) eachStored(ctx context.Context, name func(number int) string,
	fn func(b *batch) error) error {
	for number := 1; ; number++ {
		text, err := m.Catalog.BatchPlan(ctx, m.Journal.Operation(), name(number))
		if errors.Is(err, catalog.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		b := &batch{}
		if err := json.Unmarshal(text, b); err != nil {
			return fmt.Errorf("decode %s of operation %s: %w", name(number), m.Operation, err)
		}
		if err := fn(b); err != nil {
			return err
		}
	}
}

// keep stores a batch or a pre-copy. It is stored before anything is done by its plan.
func (m *run) keep(ctx context.Context, name string, b *batch) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	_, err = m.Catalog.PutBatchPlan(ctx, m.Journal.Operation(), name, bytes.NewReader(text))
	return err
}

// planBatch plans the batch of units that are paused: it takes a snapshot that holds them, verifies
// it in the bucket, plans the copy, and stores the batch. There is no batch when all of them have
// failed meanwhile. ctx ends when a unit was paused for too long, and whole with the run.
func (m *run) planBatch(ctx, whole context.Context, number int, units []string,
	of *readyGroup, lists *ahead) (*batch, error) {
	unused, err := m.unused(ctx, units)
	if err != nil {
		return nil, err
	}
	r, units, err := m.snapshotPaused(ctx, whole, units, unused, of)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if len(units) == 0 {
		return nil, nil
	}
	b := &batch{Number: number, Snapshot: string(r.ID), Source: map[string]objectState{},
		contents: r.Contents, before: of.copied}
	if r.narrow {
		b.captures = m.narrowed(of.around, units)
	}
	if of.around != nil {
		b.users = of.around.users
	}
	if err := b.setIDs(m.Store); err != nil {
		return nil, err
	}
	in, err := m.updateInput(ctx, r, units, unused, of, lists)
	if err != nil {
		return nil, err
	}
	copied, err := m.planUpdate(ctx, in)
	if err != nil {
		return nil, err
	}
	b.Copy = *copied
	if err := m.noteStates(b, r.Result); err != nil {
		return nil, err
	}
	if err := m.reportStaysPaused(ctx, b); err != nil {
		return nil, err
	}
	if err := m.keep(ctx, batchName(number), b); err != nil {
		return nil, err
	}
	for _, n := range r.Live.Graph.Nodes {
		if n.Unit != "" && !slices.Contains(units, n.Unit) {
			b.contents.Drop(n.Ref) // of a neighbour
		}
	}
	m.batches = append(m.batches, b)
	return b, nil
}

// updateInput returns what the copy of units of a group is planned from, once they are paused.
// unused moves with them; lists are those that were read ahead.
func (m *run) updateInput(ctx context.Context, r *batchSnapshot, units []string,
	unused []object.Ref, of *readyGroup, lists *ahead) (in restore.Input, err error) {
	in = restore.Input{Snapshot: r.Live, Contents: r.Contents,
		Source: restore.Snapshot{StoreID: r.StoreID, ID: string(r.ID), Key: r.Key().String(),
			Source: m.Plan.Source, Time: r.Time},
		Spec: m.specIn(r.Live.Graph, units, unused)}
	if in.Findings, err = m.notPaused(r.Live, r.Contents, units); err != nil {
		return in, err
	}
	if in.Owners, err = m.ownersOf(ctx, units); err != nil {
		return in, err
	}
	if in.Copied, err = m.fitting(ctx, r.Live, units); err != nil {
		return in, err
	}
	nodes, err := restore.Nodes(r.Live, in.Spec)
	if err != nil {
		return in, err
	}
	in.Reader = lists.reader(in.Copied, nodes)
	if of.copied != nil {
		in.Before = readOnly{of.copied}
	}
	return in, nil
}

// noteStates notes the states of the objects that a batch copies from its snapshot.
func (m *run) noteStates(b *batch, r *snapshot.Result) error {
	for _, o := range b.planned() {
		n := r.Live.Graph.Node(o.Ref)
		v := objectState{Unit: n.Unit, UID: n.UID, ResourceVersion: n.ResourceVersion}
		if n.GroupKind() == capi.Cluster || m.Rows.Row(n.GroupKind()).PausesFirst() {
			text, err := withoutPause(r.Contents, n.Ref)
			if err != nil {
				return err
			}
			v.Content = b.contentID(text)
		}
		ofUnit := n.Unit != "" && !o.Late && !m.Rows.Row(n.GroupKind()).BoundToCluster
		if ofUnit || n.Unit == "" {
			u, err := decode(r.Contents, n.Ref)
			if err != nil {
				return err
			}
			v.NoFinalizers = len(u.GetFinalizers()) == 0
			if v.Desired, err = b.desiredID(m.Rows, u); err != nil {
				return err
			}
			if isCluster(n) {
				v.Written = lastWrite(u)
			}
		}
		b.Source[n.Ref.String()] = v
	}
	return nil
}

// ownersOf reads the ownership records of units.
func (m *run) ownersOf(ctx context.Context, units []string) (map[string]ownership.Record, error) {
	var ids []string
	for _, u := range m.Plan.Copy.Units {
		if u.WorkloadID != "" && slices.Contains(units, u.Name) {
			ids = append(ids, u.WorkloadID)
		}
	}
	return ownership.Of(ctx, m.Store, ids)
}

// keepShared marks the objects of a graph as shared that were shared when the move was planned.
// Without it, an object with one user left would become a part of that unit.
func (m *run) keepShared(g *graph.Graph) {
	for _, o := range m.Plan.Copy.Shared.Objects {
		if n := g.Node(o.Ref); n != nil && n.Unit != "" {
			n.Unit, n.Shared = "", true
		}
	}
}

// notPaused reports objects of the snapshot that are not paused. They were created between the
// acknowledgements of the pause and the cut of the snapshot.
func (m *run) notPaused(s *snapshot.Snapshot, contents *snapshot.Contents, units []string) (
	[]object.Finding,
	error) {
	var findings []object.Finding
	for _, n := range s.Graph.Nodes {
		if n.Unit == "" || !slices.Contains(units, n.Unit) || s.Graph.CapturedOnly(n) {
			continue
		}
		pause := m.Rows.Row(n.GroupKind()).Pause
		if pause.Passive() {
			continue
		}
		u, err := decode(contents, n.Ref)
		if err != nil {
			return nil, err
		}
		why := m.pauser.NotPaused(n, u)
		if why == "" && pause.Order() > 0 && !m.Rows.StillPaused(u.Object) {
			why = "its switch is not set"
		}
		if why != "" {
			findings = append(findings, object.Finding{Severity: object.Error, Code: object.CodeNotPaused,
				Ref:  n.Ref,
				Unit: n.Unit, Message: "it is not paused: " + why,
				Hint: "move its workload cluster again"})
		}
	}
	return findings, nil
}

// planned returns the objects that are copied, or found equal on the target.
func (b *batch) planned() []restore.Object {
	var out []restore.Object
	for _, u := range append([]restore.Unit{b.Copy.Shared}, b.Copy.Units...) {
		for _, o := range u.Objects {
			if o.Action != restore.Skip && !u.Blocked {
				out = append(out, o)
			}
		}
	}
	return out
}

// units returns the names of the units that are not blocked.
func (b *batch) units() []string {
	var names []string
	for _, u := range b.Copy.Units {
		if !u.Blocked {
			names = append(names, u.Name)
		}
	}
	return names
}

// unitsOf returns the units of a batch, from which a flight may take those that it gives back.
func (m *run) unitsOf(b *batch) []restore.Unit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(b.Copy.Units)
}

// load captures the contents of a batch that an earlier run planned. The source must be unchanged
// in all units that are not handed over. Without the source the contents are those of the snapshot,
// and so they are when somebody deleted or changed there what was handed over: that says nothing of
// the target.
func (m *run) load(ctx context.Context, b *batch) error {
	if b.contents != nil {
		return nil
	}
	if !m.hasSource() {
		return m.loadFromStore(ctx, b)
	}
	v, err := m.captures.after(ctx, m.began)
	if err != nil {
		return err
	}
	changed, err := m.handedOverAndChanged(ctx, b, v)
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		err := m.loadFromStore(ctx, b)
		if _, locked := errors.AsType[*store.KeyError](err); !locked {
			return err
		}
		for _, unit := range slices.Sorted(maps.Keys(changed)) { // the source has the others
			m.fail(ctx, unit, &unreadableError{changed[unit], err})
		}
	}
	b.contents = v.contents
	return nil
}

// unchanged compares a unit with the state that the copy was made from, by a capture of the source
// that began after since. It returns a *ChangedError for the first difference.
func (m *run) unchanged(ctx context.Context, unit string, b *batch, since time.Time) error {
	namespaces := m.namespacesOf(unit, b.Copy.Units...)
	v, err := cmp.Or(b.captures, m.captures).of(ctx, since, namespaces)
	if err != nil {
		return err
	}
	return b.compare(v, unit)
}

// compare returns a *ChangedError for the first object of a unit that was created, changed or
// deleted on the source.
func (b *batch) compare(v *sourceCapture, unit string) error {
	now := map[string]*graph.Node{}
	for _, n := range nodesOf(v.graph, unit) {
		now[n.Ref.String()] = n
	}
	for _, u := range b.Copy.Units {
		for _, o := range u.Objects {
			if o.Action == restore.Skip {
				delete(now, o.Ref.String()) // left out of the copy with a reason
			}
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(b.Source)) {
		was := b.Source[ref]
		if was.Unit != unit {
			continue
		}
		n := now[ref]
		delete(now, ref)
		switch {
		case n == nil:
			return &ChangedError{Why: ref + " is gone"}
		case n.UID != was.UID:
			return &ChangedError{Why: ref + " was deleted and created again"}
		case was.Content != "":
			text, err := withoutPause(v.contents, n.Ref)
			if err != nil {
				return err
			}
			if !b.hasContent(was.Content, text) {
				return &ChangedError{Why: ref + " was written to"}
			}
		case n.ResourceVersion != was.ResourceVersion:
			return &ChangedError{Why: ref + " was written to"}
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(now)) {
		if _, known := b.Source[ref]; !known {
			return &ChangedError{Why: ref + " is new"}
		}
	}
	return nil
}

func decode(c restore.Contents, ref object.Ref) (*unstructured.Unstructured, error) {
	raw, err := c.Bytes(ref)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decode %s: invalid JSON", ref)
	}
	return u, nil
}
