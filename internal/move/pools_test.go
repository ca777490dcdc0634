package move

import (
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestPoolsThatAMovePauses: what only blocked units use stays at work with them, and so do pools
// whose ranges the operator has answered for, and pools that honour no pause.
func TestPoolsThatAMovePauses(t *testing.T) {
	pool := func(group, kind, name string, users ...string) restore.Object {
		return restore.Object{Ref: object.Ref{Group: group, Kind: kind, Namespace: "ns", Name: name},
			Action: restore.Create, Users: users}
	}
	const ipam, metal3 = "ipam.cluster.x-k8s.io", "ipam.metal3.io"
	plan := restore.Plan{Units: []restore.Unit{{Name: "ns/a"}, {Name: "ns/b", Blocked: true}},
		Shared: restore.Unit{Objects: []restore.Object{
			pool(ipam, "InClusterIPPool", "both", "ns/a", "ns/b"),
			pool(ipam, "GlobalInClusterIPPool", "one", "ns/a"),
			pool(ipam, "InClusterIPPool", "blocked", "ns/b"), pool(ipam, "InClusterIPPool", "unused"),
			pool(metal3, "IPPool", "metal3", "ns/a"), pool("", "Secret", "s", "ns/a")}}}
	for want, force := range map[string]object.Forced{"both one": nil,
		"": {object.CodePoolShared: ""}} {
		m := &run{Plan: &Plan{Spec: Spec{Force: force}, Copy: plan}}
		var names []string
		for _, o := range m.pools() {
			names = append(names, o.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("with %v it pauses %q, want %q", force, got, want)
		}
	}
}

// TestAResumeLeavesPoolsAtWorkWhoseUsersAreBack: they were given back, are blocked, or were gone. A
// pool that another unit uses is paused, and so is one of which a user was moved.
func TestAResumeLeavesPoolsAtWorkWhoseUsersAreBack(t *testing.T) {
	m := &run{Plan: &Plan{}, Units: map[string]catalog.UnitState{"ns/given": catalog.UnitGivenBack,
		"ns/rolled": catalog.UnitRolledBack, "ns/blocked": catalog.UnitBlocked,
		"ns/failed": catalog.UnitPending, "ns/moved": catalog.UnitRetired},
		results: results{gone: map[string]bool{"ns/gone": true}}}
	for name, users := range map[string][]string{"given": {"ns/given"},
		"back": {"ns/blocked", "ns/given", "ns/gone", "ns/rolled"}, "failed": {"ns/failed", "ns/given"},
		"moved": {"ns/given", "ns/moved"}} {
		m.Plan.Copy.Shared.Objects = append(m.Plan.Copy.Shared.Objects, restore.Object{
			Ref:    object.Ref{Group: capi.GroupIPAM, Kind: "InClusterIPPool", Namespace: "ns", Name: name},
			Action: restore.Create, Users: users})
	}
	var paused []string
	for _, o := range m.poolsInUse() {
		paused = append(paused, o.Name)
	}
	if slices.Sort(paused); !slices.Equal(paused, []string{"failed", "moved"}) {
		t.Errorf("a resume pauses %q", paused)
	}
}

// TestI1AUserOfAPoolWasMoved: by this operation, or by another one, which may not have retired it
// yet. What is gone from the source is taken for moved when there is no store to ask, or nothing is
// recorded there, and else its ownership record decides, if it was written since the plan.
func TestI1AUserOfAPoolWasMoved(t *testing.T) {
	st, _ := newStore(t)
	for unit, to := range map[string]string{"away": "other", "back": "source", "handed": "other"} {
		if err := ownership.Claim(t.Context(), st, ownership.Request{WorkloadID: "id-" + unit,
			Workload: "ns/" + unit, Operation: "0123456789ab", From: sideOf("x"),
			To: sideOf(to)}); err != nil {
			t.Fatal(err)
		}
	}
	m := &run{Plan: &Plan{Source: sideOf("source")}, results: results{retired: map[string]bool{
		"ns/retired": true}}}
	m.Source = Mgmt{Kinds: []kube.Kind{{GroupKind: capi.Cluster, Version: "v1beta2",
		Resource: "clusters", Namespaced: true}}, Reader: serve(t, map[string]string{
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/clusters/here": `{"apiVersion":
			"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"namespace":"ns","name":"here"}}`,
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/clusters/handed": `{"apiVersion":
			"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"namespace":"ns","name":"handed"}}`})}
	for _, unit := range []string{"here", "retired", "away", "back", "deleted", "handed"} {
		m.Plan.Copy.Units = append(m.Plan.Copy.Units, restore.Unit{Name: "ns/" + unit,
			WorkloadID: "id-" + unit})
	}
	for _, tt := range []struct {
		units              []string
		withStore, without bool
	}{
		{[]string{"ns/here"}, false, false},
		{[]string{"ns/here", "ns/handed"}, true, false},
		{[]string{"ns/here", "ns/retired"}, true, true},
		{[]string{"ns/here", "ns/away"}, true, true},
		{[]string{"ns/back"}, false, true},
		{[]string{"ns/deleted", "ns/here"}, false, true},
	} {
		for _, m.Store = range []*store.Store{st, nil} {
			want := tt.withStore
			if m.Store == nil {
				want = tt.without
			}
			if moved, err := m.anyMoved(t.Context(), tt.units); err != nil || moved != want {
				t.Errorf("%q with a store %t: moved %t, %v", tt.units, m.Store != nil, moved, err)
			}
		}
	}
	m.Store = st
	m.Plan.Epochs = map[string]int64{"id-away": 1}
	if moved, err := m.anyMoved(t.Context(), []string{"ns/away"}); err != nil || moved {
		t.Errorf("by the record that the plan knew: moved %t, %v", moved, err)
	}
	m.Plan.Epochs, m.Plan.Spec.NoFence = nil, true
	if moved, err := m.anyMoved(t.Context(), []string{"ns/back"}); err != nil || !moved {
		t.Errorf("of a move that records nothing: moved %t, %v", moved, err)
	}
}

// TestPoolsThatOthersUse: a workload cluster that stays, and an address of no workload cluster.
// What only names a pool, such as a template, has no address.
func TestPoolsThatOthersUse(t *testing.T) {
	ref := func(kind, name string) object.Ref {
		return object.Ref{Group: capi.GroupIPAM, Kind: kind, Namespace: "ns", Name: name}
	}
	pool := &graph.Node{Ref: ref("InClusterIPPool", "p"), Shared: true}
	user := func(kind, name, unit string) *graph.Node {
		return &graph.Node{Ref: ref(kind, name), Unit: unit, Needs: []graph.Need{{Ref: pool.Ref}}}
	}
	moves := user("IPAddressClaim", "moves", "ns/moves")
	for name, tt := range map[string]struct {
		other *graph.Node
		want  string
	}{
		"a workload cluster": {user("IPAddressClaim", "stays", "ns/stays"), "workload cluster ns/stays, which"},
		"a claim of nobody":  {user("IPAddressClaim", "vip", ""), "IPAddressClaim.ipam.cluster.x-k8s.io/ns/vip, "},
		"an address":         {user("IPAddress", "vip", ""), "IPAddress.ipam.cluster.x-k8s.io/ns/vip, which"},
		"a template":         {user("Template", "t", ""), ""},
	} {
		c := &checker{nodes: []*graph.Node{pool, moves},
			graph: &graph.Graph{Nodes: []*graph.Node{pool, moves, tt.other}}}
		if err := checkPools(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if len(c.findings) > 1 || (len(c.findings) > 0) != (tt.want != "") ||
			tt.want != "" && (!strings.HasPrefix(c.findings[0].Message, tt.want) ||
				c.findings[0].Ref != pool.Ref || c.findings[0].Severity != object.Error) {
			t.Errorf("%s: %v", name, c.findings)
		}
		c.findings, c.nodes = nil, append(c.nodes, tt.other)
		if err := checkPools(t.Context(), c); err != nil || len(c.findings) > 0 {
			t.Errorf("%s moves, too: %v, %v", name, c.findings, err)
		}
	}
}

// TestAPoolWithBlockedUsersIsInThePlan: it gives no address while they are on the source.
func TestAPoolWithBlockedUsersIsInThePlan(t *testing.T) {
	pool := func(name string, users ...string) restore.Object {
		return restore.Object{Ref: object.Ref{Group: capi.GroupIPAM, Kind: "GlobalInClusterIPPool", Name: name},
			Action: restore.Create, Users: users}
	}
	secret := pool("secret", "ns/a", "ns/b")
	secret.Group, secret.Kind = "", "Secret"
	p := &Plan{Copy: restore.Plan{Units: []restore.Unit{{Name: "ns/a"}, {Name: "ns/b", Blocked: true}},
		Shared: restore.Unit{Objects: []restore.Object{pool("both", "ns/a", "ns/b"), pool("a", "ns/a"),
			pool("b", "ns/b"), secret}}}}
	p.reportBlockedUsers(nil)
	if found := p.Copy.Findings; len(found) != 1 || found[0].Ref.Name != "both" ||
		!strings.HasPrefix(found[0].Message, "1 of the 2 workload clusters that use it are blocked, the "+
			"first: ns/b;") {
		t.Errorf("findings: %v", found)
	}
}

// TestAPoolOfWhatCameAfterThePlanStaysPaused on the target: the source has an address of it when it
// would be released. What it has no address of is released.
func TestAPoolOfWhatCameAfterThePlanStaysPaused(t *testing.T) {
	const group = "/apis/ipam.cluster.x-k8s.io/v1beta2/"
	kind := func(name, resource string) kube.Kind {
		return kube.Kind{GroupKind: object.GroupKind{Group: capi.GroupIPAM, Kind: name}, Version: "v1beta2",
			Resource: resource, Namespaced: true}
	}
	kinds := []kube.Kind{kind("IPAddress", "ipaddresses"), kind("InClusterIPPool", "inclusterippools")}
	text := func(name, rest string) string {
		return `{"apiVersion":"ipam.cluster.x-k8s.io/v1beta2","kind":"` + name + `",` + rest + `}`
	}
	m := &run{Plan: &Plan{}}
	var c *catalog.Catalog
	c, m.Journal = newJournal(t, catalog.Options{})
	m.Source = Mgmt{Kinds: kinds, Reader: serve(t, map[string]string{
		group + "ipaddresses": text("IPAddressList", `"metadata":{"resourceVersion":"7"},"items":[`+
			text("IPAddress", `"metadata":{"namespace":"ns","name":"late"},"spec":{"poolRef":{"apiGroup":
				"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"used"}}`)+`]`)})}
	m.Target = Mgmt{Kinds: kinds, Reader: serve(t, map[string]string{
		group + "namespaces/ns/inclusterippools/used": text("InClusterIPPool", `"metadata":{"namespace":"ns",
			"name":"used","annotations":{"mgmtd.dev/was-paused":"absent","cluster.x-k8s.io/paused":""}}`)})}
	pool := func(name string) restore.Object {
		return restore.Object{Ref: object.Ref{Group: capi.GroupIPAM, Kind: "InClusterIPPool", Namespace: "ns",
			Name: name}}
	}
	late := object.Ref{Group: capi.GroupIPAM, Kind: "IPAddress", Namespace: "ns", Name: "late"}
	skipped := pool("used")
	skipped.Action = restore.Skip
	for name, tt := range map[string]struct {
		pool  restore.Object
		leave map[object.Ref]bool
		ask   bool
		want  bool
	}{
		"it has an address of it":         {pool("used"), nil, true, true},
		"the address moves as well":       {pool("used"), map[object.Ref]bool{late: true}, true, false},
		"the pool waits for another unit": {pool("used"), nil, false, false},
		"the target has another pool":     {skipped, nil, true, false},
		"it has none of it":               {pool("free"), nil, true, false},
	} {
		s := m.staying()
		s.leave = tt.leave
		if kept, err := m.keepsPool(t.Context(), &s, tt.pool, tt.ask); err != nil || kept != tt.want {
			t.Errorf("%s: stays paused: %v, %v", name, kept, err)
		}
	}
	if found := findingsOf(t, c, m.Journal); len(found) != 1 || found[0].Ref.Name != "used" ||
		!strings.Contains(found[0].Message, "IPAddress.ipam.cluster.x-k8s.io/ns/late") {
		t.Errorf("findings: %v", found)
	}
}
