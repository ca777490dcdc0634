package move

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
)

// batch is what was planned for units once they were paused. It is stored: a resume carries out the
// stored plan.
type batch struct {
	Number   int    `json:"number"`
	Snapshot string `json:"snapshot"` // its id
	// Copy is the plan of the copy.
	Copy restore.Plan `json:"copy"`
	// Source are the objects as the copy was made from them, by ref.
	Source map[string]objectState `json:"source"`

	contents *snapshot.Contents // not stored; the source has them for as long as it matters
	snapshot *snapshot.Snapshot
}

// objectState identifies a source object at a point in time, so that a later change of it is noticed
// before the hand-over.
type objectState struct {
	Unit            string `json:"unit,omitempty"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	// Content of a Cluster without our lock, which changes its resourceVersion from run to run.
	Content string `json:"content,omitempty"`
}

func (p *batch) name() string { return batchName(p.Number) }

func batchName(number int) string { return fmt.Sprintf("batch-%03d", number) }

// suffix keeps the steps of batches that belong to no unit apart.
func (p *batch) suffix() string { return fmt.Sprintf("-b%d", p.Number) }

// loadBatches reads the batches that earlier runs planned.
func (m *run) loadBatches(ctx context.Context) error {
	for number := 1; ; number++ {
		text, err := m.Batches.Part(ctx, m.Journal.Operation(), batchName(number))
		if errors.Is(err, catalog.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		p := &batch{}
		if err := json.Unmarshal(text, p); err != nil {
			return fmt.Errorf("decode %s of operation %s: %w", batchName(number), m.Operation, err)
		}
		m.batches = append(m.batches, p)
	}
}

// planBatch plans the batch of units that are paused: the snapshot that holds them is in the
// bucket and verified, and the copy is planned.
func (m *run) planBatch(ctx context.Context, number int, units []string) (*batch, error) {
	r, err := m.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	p := &batch{Number: number, Snapshot: string(r.ID), Source: map[string]objectState{},
		contents: r.Contents, snapshot: r.Live}
	name := restore.Snapshot{StoreID: r.StoreID, ID: string(r.ID), Key: r.Key().String(),
		Source: m.Plan.Source, Time: r.Time}
	m.keepShared(r.Live.Graph)
	findings, err := m.notPaused(p.snapshot, p.contents, units)
	if err != nil {
		return nil, err
	}
	owners, err := ownership.Owners(ctx, m.Ownership)
	if err != nil {
		return nil, err
	}
	copied, err := m.planCopy(ctx, r.Live, r.Contents, m.Plan.Spec.copySpec(units), name, findings,
		owners)
	if err != nil {
		return nil, err
	}
	p.Copy = *copied
	for _, o := range p.planned() {
		n := r.Live.Graph.Node(o.Ref)
		v := objectState{Unit: n.Unit, UID: n.UID, ResourceVersion: n.ResourceVersion}
		if n.GroupKind() == capi.Cluster {
			if v.Content, err = withoutLock(r.Contents, n.Ref); err != nil {
				return nil, err
			}
		}
		p.Source[n.Ref.String()] = v
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	if _, err := m.Batches.PutPart(ctx, m.Journal.Operation(), p.name(),
		bytes.NewReader(text)); err != nil {
		return nil, err
	}
	m.batches = append(m.batches, p)
	return p, nil
}

// keepShared keeps shared what was shared at planning: once some of its users are retired, it would seem
// to belong to the one that is left.
func (m *run) keepShared(g *graph.Graph) {
	for _, o := range m.Plan.Copy.Shared.Objects {
		if n := g.Node(o.Ref); n != nil && n.Unit != "" {
			n.Unit, n.Shared = "", true
		}
	}
}

// notPaused finds objects in the snapshot that did not stand still, after all: newcomers of the
// moment between the acknowledgements and the cut.
func (m *run) notPaused(s *snapshot.Snapshot, contents *snapshot.Contents, units []string) ([]object.Finding,
	error) {
	var findings []object.Finding
	for _, n := range s.Graph.Nodes {
		if n.Unit == "" || !slices.Contains(units, n.Unit) {
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
		why := m.standing(n, u)
		if why == "" && pause.Order() > 0 && !capi.PausedByUs(u.Object) {
			why = "its switch is not set"
		}
		if why != "" {
			findings = append(findings, object.Finding{Severity: object.Error, Code: object.CodeNotPaused,
				Ref:  n.Ref,
				Unit: n.Unit, Message: "it does not stand still: " + why,
				Hint: "move its workload cluster again"})
		}
	}
	return findings, nil
}

// planned are the objects that are copied, or found equal on the target.
func (p *batch) planned() []restore.Object {
	var out []restore.Object
	for _, u := range append([]restore.Unit{p.Copy.Shared}, p.Copy.Units...) {
		for _, o := range u.Objects {
			if o.Action != restore.Skip && !u.Blocked {
				out = append(out, o)
			}
		}
	}
	return out
}

// units are the names of the units that can run.
func (p *batch) units() []string {
	var names []string
	for _, u := range p.Copy.Units {
		if !u.Blocked {
			names = append(names, u.Name)
		}
	}
	return names
}

// load gives a batch of an earlier run its contents again, from the source, which must be as it was
// in all units that are not handed over.
func (m *run) load(ctx context.Context, p *batch) error {
	if p.contents != nil {
		return nil
	}
	v, err := m.captures.after(ctx, m.began)
	if err != nil {
		return err
	}
	p.contents, p.snapshot = v.contents, v.source
	return nil
}

// unchanged looks at the source once more: what the copy was made from must be all that is there,
// and as it was.
func (m *run) unchanged(ctx context.Context, unit string, p *batch) error {
	v, err := m.captures.after(ctx, time.Now())
	if err != nil {
		return err
	}
	return p.compare(v, unit)
}

// compare says what is not as it was in a unit of the source.
func (p *batch) compare(v *sourceCapture, unit string) error {
	now := map[string]*graph.Node{}
	for _, n := range nodesOf(v.graph, unit) {
		now[n.Ref.String()] = n
	}
	for _, u := range p.Copy.Units {
		for _, o := range u.Objects {
			if o.Action == restore.Skip {
				delete(now, o.Ref.String()) // left out of the copy with a reason
			}
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(p.Source)) {
		was := p.Source[ref]
		if was.Unit != unit {
			continue
		}
		n := now[ref]
		delete(now, ref)
		switch {
		case n == nil:
			return &ChangedError{Why: ref + " is gone"}
		case n.UID != was.UID:
			return &ChangedError{Why: ref + " was made anew"}
		case was.Content != "":
			content, err := withoutLock(v.contents, n.Ref)
			if err != nil {
				return err
			}
			if content != was.Content {
				return &ChangedError{Why: ref + " was written to"}
			}
		case n.ResourceVersion != was.ResourceVersion:
			return &ChangedError{Why: ref + " was written to"}
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(now)) {
		if _, known := p.Source[ref]; !known {
			return &ChangedError{Why: ref + " is new"}
		}
	}
	return nil
}

// withoutLock is a hash over a Cluster but for our lock and what changes with it.
func withoutLock(c *snapshot.Contents, ref object.Ref) (string, error) {
	u, err := decode(c, ref)
	if err != nil {
		return "", err
	}
	restore.Unannotate(u, capi.AnnotationOperation)
	unstructured.RemoveNestedField(u.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	text, err := u.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", ref, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func decode(c *snapshot.Contents, ref object.Ref) (*unstructured.Unstructured, error) {
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
