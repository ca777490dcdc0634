package move

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file frees what only units that are done need, so that memory follows the units in flight
// and not the fleet. Nothing of that is stored: a resume reads all of it again.

// leaveObjects takes the objects of units out of the plan of this run.
func (m *run) leaveObjects() {
	plan := *m.Plan // the caller has it, too
	plan.Copy.Units = slices.Clone(plan.Copy.Units)
	for i, u := range plan.Copy.Units {
		m.namespaces[u.Name] = namespacesIn(u)
		m.switches[u.Name] = m.switchesIn(u)
		plan.Copy.Units[i].Objects = nil
	}
	m.Plan = &plan
}

// namespacesIn returns the namespaces in which a plan has objects of a unit.
func namespacesIn(u restore.Unit) (found []string) {
	for _, o := range u.Objects {
		if o.Namespace != "" && !slices.Contains(found, o.Namespace) {
			found = append(found, o.Namespace)
		}
	}
	return found
}

// switchesIn returns the objects of a unit that have a switch of their own, in the order of a plan.
func (m *run) switchesIn(u restore.Unit) (found []object.Ref) {
	for _, o := range u.Objects {
		row := m.Rows.Row(o.GroupKind())
		if o.GroupKind() != capi.Cluster && (row.Pause.Order() > 0 || row.PausesFirst()) {
			found = append(found, o.Ref)
		}
	}
	return found
}

// settle frees what only the retired units of a batch need and, once all are, what only the batch
// needs. What is left is for the end of the run: the shared objects are released and retired then,
// and units observed. An autoscaler changes the number of Machines that their owners have.
func (m *run) settle(b *batch) {
	m.mu.Lock()
	all := true
	for _, unit := range b.units() {
		if all = all && m.results.retired[unit]; m.results.retired[unit] {
			m.settleUnit(b, unit)
		}
	}
	m.mu.Unlock()
	if !all {
		return
	}
	source := map[string]objectState{} // another map: one from which entries are deleted stays large
	for ref, was := range b.Source {
		if was.Unit == "" {
			source[ref] = was
		}
	}
	var read []object.Ref
	for _, o := range b.Copy.Shared.Objects {
		read = append(read, o.Ref)
	}
	units := m.unitsOf(b)
	for i, u := range units {
		var owners []object.Ref
		units[i].Objects, owners = m.observed(u)
		read = append(read, owners...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b.Source, b.Copy.Units, b.users = source, units, nil
	if contents, err := b.contents.Only(read); err == nil {
		b.contents = contents // else all of them stay
	}
}

// settleUnit frees what only a retired unit needs. The caller has m.mu.
func (m *run) settleUnit(b *batch, unit string) {
	delete(m.asked, unit)
	delete(m.pre.uids, unit)
	for _, p := range m.pre.plans {
		if slices.Contains(p.units(), unit) { // it is carried out, unlike those of other units
			p.leave(map[string]bool{unit: true})
		}
	}
	b.forget(unit)
}

// observed returns the objects of a unit that are observed, Machines and what is reconciled seldom,
// with the owners of the Machines, and these owners.
func (m *run) observed(u restore.Unit) (objects []restore.Object, owners []object.Ref) {
	for _, o := range u.Objects {
		if o.GroupKind() == capi.Machine {
			owners = append(owners, o.Owners...)
		}
	}
	for _, o := range u.Objects {
		if o.GroupKind() == capi.Machine || slices.Contains(owners, o.Ref) ||
			m.Rows.Row(o.GroupKind()).RateLimited {
			objects = append(objects, o)
		}
	}
	return objects, owners
}
