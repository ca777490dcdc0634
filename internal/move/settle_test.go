package move

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// TestARetiredBatchHasWhatTheEndOfTheRunNeeds: the shared objects, and the Machines with their
// owners. As long as one unit of a batch is not retired, all of it stays.
func TestARetiredBatchHasWhatTheEndOfTheRunNeeds(t *testing.T) {
	ref := func(kind, name string) object.Ref {
		return object.Ref{Group: capi.Cluster.Group, Kind: kind, Namespace: "ns", Name: name}
	}
	unit := func(name string) restore.Unit {
		set := ref("MachineSet", name)
		return restore.Unit{Name: "ns/" + name, Objects: []restore.Object{{Ref: ref("Cluster", name)},
			{Ref: ref("MachineHealthCheck", name)}, {Ref: set}, {Ref: ref(capi.Machine.Kind, name), Owners: []object.Ref{set}}}}
	}
	class := ref("ClusterClass", "class")
	b := &batch{contents: &snapshot.Contents{}, Source: map[string]objectState{class.String(): {}},
		Copy: restore.Plan{Units: []restore.Unit{unit("a"), unit("b")},
			Shared: restore.Unit{Objects: []restore.Object{{Ref: class}}}}}
	for _, u := range b.Copy.Units {
		for _, o := range u.Objects {
			b.Source[o.Ref.String()] = objectState{Unit: u.Name, Desired: "x"}
		}
	}
	plan := &Plan{Copy: restore.Plan{Units: slices.Clone(b.Copy.Units)}}
	m := &run{Plan: plan, namespaces: map[string][]string{}, switches: map[string][]object.Ref{},
		asked: map[string][]object.Ref{"": {class}, "ns/a": {class}, "ns/b": {class}},
		pre: preCopies{uids: map[string]map[object.Ref]string{"ns/a": {}, "ns/b": {}},
			plans: []*batch{{Copy: restore.Plan{Units: slices.Clone(b.Copy.Units)}}}},
		results: results{retired: map[string]bool{"ns/a": true}}}
	m.leaveObjects()
	if len(plan.Copy.Units[0].Objects) != 4 || m.Plan.Copy.Units[0].Objects != nil ||
		!slices.Equal(m.namespacesOf("ns/a"), []string{"ns"}) {
		t.Errorf("the plan is %+v, that of the run %+v", plan.Copy.Units, m.Plan.Copy.Units)
	}
	check := func(source, objects, units int) {
		t.Helper()
		m.settle(b)
		if len(b.Source) != source || len(b.Copy.Units[0].Objects) != objects ||
			len(m.asked) != units+1 || len(m.pre.uids) != units || len(m.pre.plans[0].units()) != units {
			t.Errorf("%v, %+v, %v, %v", b.Source, b.Copy.Units, m.asked, m.pre)
		}
	}
	check(9, 4, 1)
	if b.Source[ref("Cluster", "a").String()].Desired != "" {
		t.Error("ids of a retired unit are there")
	}
	m.results.retired["ns/b"] = true
	check(1, 3, 0)
	if b.Copy.Units[0].Objects[0].Kind != "MachineHealthCheck" {
		t.Errorf("left are %v", b.Copy.Units[0].Objects)
	}
}
