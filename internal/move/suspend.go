package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/gitops"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// suspendStep is the step that suspends owners. Its values are the switches as they were, by owner.
func suspendStep() catalog.Step { return catalog.Step{Phase: "suspend-gitops"} }

// suspendGitOps suspends the owners of the plan on the source, before anything is paused there:
// roots first, so that no parent ends the suspension of what it applies. Then it waits for what
// their tools are in the middle of. What an owner was is recorded before its switch is written, so
// that a rollback after a crash gives it back.
func (m *run) suspendGitOps(ctx context.Context) error {
	if len(m.Plan.Suspend) == 0 {
		return nil
	}
	state, err := m.Journal.State(ctx, suspendStep())
	if err != nil {
		return err
	}
	if state == catalog.StepDone {
		return m.checkSuspended(ctx)
	}
	err = m.Journal.Do(ctx, suspendStep(), func(ctx context.Context, h *catalog.StepHandle) error {
		for _, s := range m.suspends() {
			if err := m.suspendOwner(ctx, h, s.Owner); err != nil {
				return err
			}
		}
		// A reconciliation that read its owner right before the switch has not shown itself yet.
		if err := retry.Sleep(ctx, m.Tuning.Settle); err != nil {
			return err
		}
		return m.awaitIdle(ctx)
	})
	if err != nil {
		return fmt.Errorf("suspend GitOps on the source: %w", err)
	}
	return nil
}

// ResumedError means that somebody resumed owners which the move had suspended, or that
// were to be and were suspended already.
type ResumedError struct{ Owners []object.Ref }

func (e *ResumedError) Error() string {
	return fmt.Sprintf("owners that were suspended on the source for the move work again: %d, "+
		"the first: %s", len(e.Owners), e.Owners[0])
}

// Hint says what the operator can do.
func (e *ResumedError) Hint() string {
	return "suspend them again, from the root down, then resume the operation; or roll it back"
}

// checkSuspended returns a *ResumedError when an owner that the plan suspends is not suspended any
// more, of those of some units, or of all without any: it would work on what is paused, and on what
// is gone. Somebody may have resumed it, or the rollback of another move, which does not know of
// units that are not locked yet. Owners that were suspended when the move was planned are not in
// the plan. An owner whose units have all gone back to the source works for them there.
func (m *run) checkSuspended(ctx context.Context, units ...string) error {
	resumed := &ResumedError{}
	for _, s := range m.Plan.Suspend {
		if !slices.ContainsFunc(m.movedOf(s), func(unit string) bool {
			return len(units) == 0 || slices.Contains(units, unit)
		}) {
			continue
		}
		err := m.pauser.Change(ctx, s.Owner, func(u *unstructured.Unstructured) (bool, error) {
			_, suspended, err := gitops.ReadSwitch(u)
			if err == nil && !suspended {
				resumed.Owners = append(resumed.Owners, s.Owner)
			}
			return false, err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if len(resumed.Owners) > 0 {
		return resumed
	}
	return nil
}

// movedOf returns the units of an owner but for those that are not moved any more.
func (m *run) movedOf(s Suspension) []string {
	return slices.DeleteFunc(slices.Clone(s.Units), func(unit string) bool {
		over := m.over(unit)
		m.mu.Lock()
		defer m.mu.Unlock()
		return over && !m.results.retired[unit]
	})
}

// suspends returns the owners that the move suspends now.
func (m *run) suspends() []Suspension {
	return slices.DeleteFunc(slices.Clone(m.Plan.Suspend),
		func(s Suspension) bool { return len(m.movedOf(s)) == 0 })
}

// suspendOwner suspends one owner. It leaves one alone that is suspended: then somebody else did
// so, or an earlier attempt, which recorded it. An owner that is gone applies nothing.
func (m *run) suspendOwner(ctx context.Context, h *catalog.StepHandle, owner object.Ref) error {
	err := m.pauser.Change(ctx, owner, func(u *unstructured.Unstructured) (bool, error) {
		was, suspended, err := gitops.ReadSwitch(u)
		if err != nil || suspended {
			return false, err
		}
		text, err := json.Marshal(was)
		if err != nil {
			return false, err
		}
		if err := h.Record(ctx, catalog.Value{Key: owner.String(), Data: text}); err != nil {
			return false, err
		}
		if err := h.Sync(ctx); err != nil {
			return false, err
		}
		return true, gitops.SetSwitch(u)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// awaitIdle waits until no tool is applying the objects of a suspended owner any more.
func (m *run) awaitIdle(ctx context.Context) error {
	return restore.Wait(ctx, restore.WaitError{Side: "source",
		What: "the tools of suspended owners to end their work"}, kube.Waiting[Suspension]{
		Objects: m.suspends(), Limit: m.Tuning.Wait,
		Judge: func(ctx context.Context, all []Suspension, _ map[object.Ref][]byte) (
			left []Suspension, first string, err error) {
			for _, s := range all {
				k, _ := kube.FindKind(m.Source.Kinds, s.Owner.GroupKind())
				u, err := m.Source.Reader.Get(ctx, k, s.Owner.Namespace, s.Owner.Name)
				why := ""
				switch {
				case apierrors.IsNotFound(err):
				case err != nil && kube.Transient(err):
					why = err.Error()
				case err != nil:
					return nil, "", fmt.Errorf("%s: %w", s.Owner, err)
				default:
					why = gitops.Busy(u)
				}
				if why != "" {
					left, first = append(left, s), s.Owner.String()+": "+why
				}
			}
			return left, first, nil
		}})
}

// resumeGitOps gives the owners back that the move suspended, those below first. With units that
// stay moved, the owners that apply their objects stay suspended, since they would create them
// again; a finding names them. So do the owners of what another operation has locked, and those of
// units of this move that it has moved: it has found them suspended.
func (m *run) resumeGitOps(ctx context.Context, moved []string) error {
	if len(m.Plan.Suspend) == 0 {
		return nil
	}
	others, err := m.ownersNeeded(ctx, m.Plan.Suspend)
	if err != nil {
		return err
	}
	because := func(s Suspension) []string {
		units := slices.DeleteFunc(slices.Clone(s.Units),
			func(u string) bool { return !slices.Contains(moved, u) })
		units = append(units, others[s.Owner]...)
		slices.Sort(units)
		return slices.Compact(units)
	}
	stays := func(s Suspension) bool { return len(because(s)) > 0 }
	if slices.ContainsFunc(m.Plan.Suspend, stays) {
		return errors.Join(m.resumeOwners(ctx, stays), m.reportSuspended(ctx, because))
	}
	return m.Journal.Undo(ctx, suspendStep(), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		return m.resumeOwners(ctx, stays)
	})
}

// ownersOfOthers returns the owners that apply Clusters of the source which another move has
// locked, with the units of these.
func (m *run) ownersOfOthers(ctx context.Context) (map[object.Ref][]string, error) {
	k, served := kube.FindKind(m.Source.Kinds, capi.Cluster)
	if !served {
		return nil, nil
	}
	search := gitops.NewSearch()
	var locked []string
	_, err := m.Source.Reader.List(ctx, k, kube.ListOptions{}, func(raw []byte) error {
		metadata := gjson.GetBytes(raw, "metadata")
		operation, _, is := strings.Cut(metadata.Get("annotations."+
			gjson.Escape(capi.AnnotationOperation)).String(), "/")
		if !is || operation == m.Operation {
			return nil
		}
		key := object.Key{Namespace: metadata.Get("namespace").String(),
			Name: metadata.Get("name").String()}
		locked = append(locked, key.String())
		search.Add(object.Ref{Group: k.Group, Kind: k.Kind, Namespace: key.Namespace, Name: key.Name},
			key.String(), raw)
		return nil
	})
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	found, err := search.Owners(ctx, m.Source.Reader, m.Source.Kinds)
	units := found.UnitsOf()
	if len(found.Unread) > 0 { // any owner may apply any of them
		for _, s := range m.Plan.Suspend {
			units[s.Owner] = locked
		}
	}
	return units, err
}

// suspensions returns the owners that the move has suspended, with their switches as they were.
func (m *run) suspensions(ctx context.Context) (map[object.Ref]gitops.Switch, error) {
	values, err := m.Journal.Values(ctx, suspendStep())
	if err != nil {
		return nil, err
	}
	ours := map[object.Ref]gitops.Switch{}
	for _, s := range m.Plan.Suspend {
		if text, ok := values[s.Owner.String()]; ok {
			var was gitops.Switch
			if err := json.Unmarshal(text, &was); err != nil {
				return nil, fmt.Errorf("decode the switch of %s: %w", s.Owner, err)
			}
			ours[s.Owner] = was
		}
	}
	return ours, nil
}

func (m *run) resumeOwners(ctx context.Context, stays func(Suspension) bool) error {
	ours, err := m.suspensions(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range slices.Backward(m.Plan.Suspend) {
		was, ok := ours[s.Owner]
		if !ok || stays(s) {
			continue
		}
		err := m.pauser.Change(ctx, s.Owner, func(u *unstructured.Unstructured) (bool, error) {
			changed, err := gitops.ResetSwitch(u, was)
			if err == nil && changed {
				err = m.Journal.Alive(ctx) // after the read: another host may have taken over
			}
			return changed, err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("resume GitOps: %w", err))
		}
	}
	return errors.Join(errs...)
}

// endSuspensions reports, at the end of a run, the owners that stay suspended. When no unit is left
// for a resume, it gives those back of which all units have left the move: these are at work on the
// source, unless they were moved by another operation, which leaves their owner suspended.
func (m *run) endSuspensions(ctx context.Context) error {
	units := map[object.Ref][]string{} // because of which an owner stays so
	var left []Suspension
	for _, s := range m.Plan.Suspend {
		if units[s.Owner] = m.movedOf(s); len(units[s.Owner]) == 0 {
			left = append(left, s)
		}
	}
	because := func(s Suspension) []string { return units[s.Owner] }
	if len(left) == 0 || m.left() > 0 || !m.hasSource() {
		return m.reportSuspended(ctx, because)
	}
	others, err := m.ownersNeeded(ctx, left)
	if err != nil {
		return errors.Join(fmt.Errorf("resume GitOps: %w", err), m.reportSuspended(ctx, because))
	}
	for _, s := range left {
		units[s.Owner] = others[s.Owner]
	}
	return errors.Join(m.resumeOwners(ctx, func(s Suspension) bool { return len(because(s)) > 0 }),
		m.reportSuspended(ctx, because))
}

// ownersNeeded returns those of suspended owners that have to stay so for another operation, with
// the units: it has locked some, or has moved some of those that this move suspended the owner for.
func (m *run) ownersNeeded(ctx context.Context, of []Suspension) (map[object.Ref][]string, error) {
	needed, err := m.ownersOfOthers(ctx)
	if err != nil {
		return nil, err
	}
	units := map[object.Ref][]string{}
	for _, s := range of {
		units[s.Owner] = slices.Clone(needed[s.Owner])
		moved, err := m.movedSince(ctx, s.Units)
		if err != nil {
			return nil, err
		}
		for _, unit := range moved {
			if !slices.Contains(units[s.Owner], unit) {
				units[s.Owner] = append(units[s.Owner], unit)
			}
		}
	}
	return units, nil
}

// movedSince returns those of units that were moved since the plan: this operation has retired
// them, or their ownership records say so. Where a move records no owners, or there is no store to
// ask, one that is gone from the source is taken for moved.
func (m *run) movedSince(ctx context.Context, units []string) (moved []string, err error) {
	records := map[string]ownership.Record{}
	asks := m.Store != nil && !m.Plan.Spec.NoFence
	if asks {
		if records, err = m.ownersOf(ctx, units); err != nil {
			return nil, err
		}
	}
	for _, unit := range units {
		is := m.results.retired[unit]
		switch {
		case is:
		case asks:
			i := slices.IndexFunc(m.Plan.Copy.Units, func(u restore.Unit) bool { return u.Name == unit })
			if i >= 0 {
				u := m.Plan.Copy.Units[i]
				r := records[u.WorkloadID]
				is = r.Trusted && r.By.UID != m.Plan.Source.UID && r.Epoch > m.request(u).Epoch
			}
		default:
			ref, err := clusterRef(unit)
			if err != nil {
				return nil, err
			}
			live, err := on(ctx, m.Source, ref)
			if err != nil {
				return nil, err
			}
			is = live == nil
		}
		if is {
			moved = append(moved, unit)
		}
	}
	return moved, nil
}

// reportSuspended reports those owners that a run leaves suspended because of some units.
func (m *run) reportSuspended(ctx context.Context, because func(Suspension) []string) error {
	ours, err := m.suspensions(ctx)
	if err != nil || len(ours) == 0 {
		return err
	}
	var findings []object.Finding
	for _, s := range m.Plan.Suspend {
		was, ok := ours[s.Owner]
		units := because(s)
		if !ok || len(units) == 0 {
			continue
		}
		findings = append(findings, object.Finding{Severity: object.Warning,
			Code: object.CodeGitOpsSuspended, Ref: s.Owner,
			Message: "the move suspended it and leaves it so: resumed, it would work on what has moved, " +
				"or is being moved (" + strings.Join(units, ", ") + ")",
			Hint: "remove from Git what has moved, or point it at the target, then " +
				gitops.HowToResume(s.Owner, was)})
	}
	return m.Journal.EmitFindings(ctx, findings)
}
