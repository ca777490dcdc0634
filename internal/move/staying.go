package move

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file is about the copies of shared objects whose users do not all move.

// staying knows which units stay on the source for good: they have left the move, or are blocked.
type staying struct {
	users map[object.Ref][]string // of shared objects, those that stay
	moves map[object.Ref]bool     // a user of the object moves
	all   bool                    // no unit moves
	kept  map[object.Ref]bool     // what keepsPool has said of the pools that it has reported
	// addresses are of pools, by these: what the source still has of each, one object. Nil means that
	// it was not asked yet.
	addresses map[object.Ref]object.Ref
	// leave are objects that the source still has, and that leave it with this move.
	leave map[object.Ref]bool
}

// staying returns what is known of the units that stay.
func (m *run) staying() staying {
	return m.usersOf(func(u restore.Unit) bool {
		return u.Blocked || m.hasLeft(u.Name) || m.Units[u.Name] == catalog.UnitBlocked
	})
}

// usersOf is staying for the units that is says. It reads the users of shared objects in all plans:
// each may know of others.
func (m *run) usersOf(is func(u restore.Unit) bool) staying {
	s := staying{users: map[object.Ref][]string{}, moves: map[object.Ref]bool{}, all: true,
		kept: map[object.Ref]bool{}}
	stays := map[string]bool{}
	for _, u := range m.Plan.Copy.Units {
		stays[u.Name] = is(u)
		s.all = s.all && stays[u.Name]
	}
	for _, p := range append(m.copies(), &batch{Copy: m.Plan.Copy}) {
		for _, o := range p.Copy.Shared.Objects {
			for _, unit := range o.Users {
				if !stays[unit] {
					s.moves[o.Ref] = true
				} else if !slices.Contains(s.users[o.Ref], unit) {
					s.users[o.Ref] = append(s.users[o.Ref], unit)
				}
			}
		}
	}
	return s
}

// onlyTheirs reports whether a shared object was copied for units alone that stay on the source.
// What no unit uses would have moved with any.
func (s staying) onlyTheirs(ref object.Ref) bool {
	return !s.moves[ref] && (s.all || len(s.users[ref]) > 0)
}

// keepsPool reports whether a pool of addresses is not released on the target, since the source
// hands out addresses of it to units that stay there, or, asked, has an address of it for somebody
// else. It is a finding as well when the pool is at work on the target already.
func (m *run) keepsPool(ctx context.Context, s *staying, o restore.Object, ask bool) (bool, error) {
	if !m.Rows.Row(o.GroupKind()).AddressPool || m.Plan.Spec.Force.Has(object.CodePoolShared) {
		return false, nil
	}
	if kept, reported := s.kept[o.Ref]; reported {
		return kept, nil
	}
	user, err := m.userOnSource(ctx, s, o.Ref, ask && o.Action != restore.Skip)
	if err != nil || user == "" {
		return false, err
	}
	copied, err := on(ctx, m.Target, o.Ref)
	if err != nil {
		return false, err
	}
	atWork := copied != nil && !m.Rows.StillPaused(copied.Object)
	f := object.Finding{Severity: object.Warning, Code: object.CodePoolShared, Ref: o.Ref,
		Message: "it stays paused on the target, since " + user + ", which is not moved, uses it on " +
			"the source",
		Hint: "move that one as well; the next move of it releases the pool"}
	if atWork {
		f.Message = "it is at work on the target, and the source hands out addresses of it to " + user +
			", which is not moved"
		f.Hint = "move that one as well, or see that the addresses of both do not overlap"
	}
	s.kept[o.Ref] = !atWork
	return !atWork, m.Journal.Emit(ctx, catalog.FindingEvent("", f))
}

// userOnSource returns a unit that stays on the source and uses a pool, or an object that stays
// there and has an address of it. "" means that there is none.
func (m *run) userOnSource(ctx context.Context, s *staying, pool object.Ref, ask bool) (string,
	error) {
	for _, unit := range s.users[pool] {
		there := &unstructured.Unstructured{}
		if ref, err := clusterRef(unit); err != nil {
			return "", err
		} else if m.hasSource() {
			if there, err = on(ctx, m.Source, ref); err != nil {
				return "", err
			}
		}
		if there != nil {
			return unit, nil
		}
	}
	if !ask {
		return "", nil
	}
	if s.addresses == nil {
		var err error
		if s.addresses, err = m.addressesOnSource(ctx, s.leave); err != nil {
			return "", err
		}
	}
	if ref, is := s.addresses[pool]; is {
		return ref.String(), nil
	}
	return "", nil
}

// addressesOnSource returns one object of each pool that the source has an address of, by pool, but
// for those that leave it. It asks late: a workload cluster may have come after the plan.
func (m *run) addressesOnSource(ctx context.Context, leave map[object.Ref]bool) (
	map[object.Ref]object.Ref, error) {
	found := map[object.Ref]object.Ref{}
	if !m.hasSource() {
		return found, nil
	}
	nodes := capture.NewNodeReader(m.Source.Kinds, m.Rows)
	for _, k := range m.Source.Kinds {
		if !m.Rows.Row(k.GroupKind).Address {
			continue
		}
		if _, err := m.Source.Reader.List(ctx, k, kube.ListOptions{}, func(raw []byte) error {
			n := nodes.Node(k, raw)
			for _, need := range n.Needs {
				if !leave[n.Ref] {
					found[need.Ref] = n.Ref
				}
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("list addresses of pools on the source: %w", err)
		}
	}
	return found, nil
}

// poolsThatStay returns those of the shared objects that a rollback leaves on the target which are
// pools of addresses, and which the source uses again: what is retired is at work on the target
// with the others of their addresses.
func (m *run) poolsThatStay(ctx context.Context, needed map[object.Ref]bool) (
	map[object.Ref]bool, error) {
	back := m.usersOf(func(u restore.Unit) bool { return !m.results.retired[u.Name] })
	pools := map[object.Ref]bool{}
	for ref, is := range needed {
		if !is {
			continue
		}
		keeps, err := m.keepsPool(ctx, &back, restore.Object{Ref: ref}, true)
		if err != nil {
			return nil, err
		}
		pools[ref] = keeps
	}
	return pools, nil
}

// reportKept reports the copies of shared objects that were made for units alone that stay on the
// source. They stay as they are, since something there may have come to use them: an operation
// that works beside this one, in particular.
func (m *run) reportKept(ctx context.Context) error {
	staying, reported := m.staying(), map[object.Ref]bool{}
	for _, p := range m.copies() {
		for _, o := range p.Copy.Shared.Objects {
			if reported[o.Ref] || o.Action != restore.Create ||
				o.GroupKind() == kube.NamespaceKind.GroupKind || !staying.onlyTheirs(o.Ref) {
				continue
			}
			reported[o.Ref] = true
			there, err := on(ctx, m.Target, o.Ref)
			if err != nil {
				return err
			}
			if there == nil {
				continue
			}
			if err := m.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{
				Severity: object.Warning, Code: object.CodeSharedKept, Ref: o.Ref,
				Message: "it was copied to the target for a workload cluster that is not moved any more, " +
					"and stays there as it is",
				Hint: "it does no harm; an operation that restores or moves that workload cluster later " +
					"adopts it"})); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportNotMoved reports the shared objects of the plan that no batch has taken along, and that are
// on the source: the units that use them, or all of their namespace, have left the move, or the
// batches have left them out.
func (m *run) reportNotMoved(ctx context.Context) error {
	moved, skipped := sharedOf(m.copies())
	namespaces := m.namespacesOfPlan() // of what moves
	for _, o := range m.Plan.Copy.Shared.Objects {
		leaves := len(o.Users) == 0 && namespaces[o.Namespace] ||
			slices.ContainsFunc(o.Users, func(unit string) bool { return !m.hasLeft(unit) })
		if moved[o.Ref] || o.Action == restore.Skip ||
			o.GroupKind() == kube.NamespaceKind.GroupKind || leaves && skipped[o.Ref] == "" {
			continue
		}
		here, err := on(ctx, m.Source, o.Ref)
		if err != nil {
			return err
		}
		if here == nil {
			continue
		}
		f := object.Finding{Severity: object.Warning, Code: object.CodeSharedKept, Ref: o.Ref,
			Message: "it stays on the source and was not copied: the workload clusters that it was to be " +
				"moved with are not moved any more",
			Hint: "move it by its namespace once more, or take a snapshot, before you turn the source " +
				"off"}
		if leaves {
			f.Message = "it stays on the source and was not copied: " + skipped[o.Ref]
		}
		if err := m.Journal.Emit(ctx, catalog.FindingEvent("", f)); err != nil {
			return err
		}
	}
	return nil
}

// sharedOf returns the shared objects that batches have taken along, and why batches have left
// others out.
func sharedOf(batches []*batch) (moved map[object.Ref]bool, skipped map[object.Ref]string) {
	moved, skipped = map[object.Ref]bool{}, map[object.Ref]string{}
	for _, b := range batches {
		for _, o := range b.Copy.Shared.Objects {
			if o.Action != restore.Skip {
				moved[o.Ref] = true
				continue
			}
			skipped[o.Ref] = "its pre-flight left it out: " + o.Reason
			for _, f := range b.Copy.Findings {
				if f.Ref == o.Ref {
					skipped[o.Ref] = f.Message
				}
			}
		}
	}
	return moved, skipped
}
