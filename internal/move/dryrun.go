package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// namespacesSuffix ends the names of the steps that create namespaces before the first pause.
const namespacesSuffix = "-namespaces"

// dryRun asks the target about units that no batch has, before the first pause. The plan could not
// ask where the namespace was missing. So it creates the namespaces, which the first batch would
// create, and plans the copy again. Units that the target refuses are in m.refused: the source
// reconciles them all the time. They have no journaled state, so that a resume asks again. Objects
// whose class is missing on the target are asked about when their batch is copied.
func (m *run) dryRun(ctx context.Context, units []string) error {
	defer m.captures.dropLatest() // the batches have captures of their own
	namespaces := m.Plan.Copy
	namespaces.Units, namespaces.Shared.Objects = nil, slices.DeleteFunc(
		slices.Clone(namespaces.Shared.Objects), func(o restore.Object) bool {
			return o.GroupKind() != kube.NamespaceKind.GroupKind || o.Action != restore.Create ||
				!slices.ContainsFunc(o.Users, func(u string) bool { return slices.Contains(units, u) })
		})
	if len(namespaces.Shared.Objects) == 0 {
		return nil
	}
	v, err := m.captures.after(ctx, m.began)
	if err != nil {
		return err
	}
	tuning := m.Tuning
	tuning.Canary, tuning.Observe = "", 0
	err = restore.Run(ctx, restore.RunOptions{
		Plan: &namespaces, Contents: v.contents, Modifiers: m.Modifiers, Reader: m.Target.Reader,
		Writer: m.Target.Writer, Kinds: m.Target.Kinds, Rows: m.Rows,
		Operation: m.Operation, Journal: m.Journal, Tuning: tuning,
		Hooks: restore.Hooks{StepSuffix: namespacesSuffix, LeaveSharedPaused: true},
	})
	if _, incomplete := errors.AsType[*restore.IncompleteError](err); err != nil && !incomplete {
		return err
	}
	there := slices.DeleteFunc(slices.Clone(units), func(unit string) bool {
		ref, err := clusterRef(unit)
		return err == nil && v.graph.Node(ref) == nil // each leaves when its turn comes
	})
	if len(there) == 0 {
		return nil
	}
	owners, err := m.ownersOf(ctx, there)
	if err != nil {
		return err
	}
	plan, err := m.planCopy(ctx, restore.Input{Snapshot: v.source, Contents: v.contents,
		Source: restore.Snapshot{Source: m.Plan.Source, Time: v.source.Envelope.Time},
		Spec:   m.specIn(v.graph, there, nil), Owners: owners, Asked: m.askedAbout(there),
		BeforePause: true})
	if err != nil {
		return err
	}
	m.noteAsked(plan)
	m.refuse(ctx, plan)
	return nil
}

// refuse reports the units that a plan blocks.
func (m *run) refuse(ctx context.Context, plan *restore.Plan) {
	for _, u := range plan.Units {
		if !u.Blocked && !plan.Blocked {
			continue
		}
		m.refused[u.Name] = true
		for _, f := range plan.Findings {
			if f.Severity >= object.Error && f.Concerns(u.Name) {
				_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(u.Name, f))
			}
		}
	}
}

// noteAsked notes the objects about which a plan has asked the target.
func (m *run) noteAsked(plan *restore.Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range append([]restore.Unit{plan.Shared}, plan.Units...) {
		for _, o := range u.Objects {
			if o.Checked {
				m.asked[u.Name] = append(m.asked[u.Name], o.Ref)
			}
		}
	}
}

// askedAbout returns the objects of units, and of what they share, about which this run has asked
// the target.
func (m *run) askedAbout(units []string) map[object.Ref]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := map[object.Ref]bool{}
	for _, unit := range append([]string{""}, units...) {
		for _, ref := range m.asked[unit] {
			asked[ref] = true
		}
	}
	return asked
}

// asksOnce returns ends of which the target is asked for each right once: a run has many plans that
// need to know.
func (e Ends) asksOnce() Ends {
	if _, already := e.Target.Prober.(*askedOnce); !already && e.Target.Prober != nil {
		e.Target.Prober = &askedOnce{Prober: e.Target.Prober, answers: map[string]bool{}}
	}
	return e
}

// askedOnce remembers the rights that there are.
type askedOnce struct {
	Prober
	mu      sync.Mutex
	answers map[string]bool
}

// Allowed implements Prober.
func (p *askedOnce) Allowed(ctx context.Context, verb string, k kube.Kind, subresource string) (
	bool, error) {
	right := fmt.Sprint(verb, " ", k.GroupKind, " ", subresource)
	p.mu.Lock()
	allowed := p.answers[right]
	p.mu.Unlock()
	if allowed {
		return true, nil
	}
	allowed, err := p.Prober.Allowed(ctx, verb, k, subresource)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[right] = allowed && err == nil
	return allowed, err
}
