package move

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestI1APoolOfWhatIsRolledBackStaysPausedOnTheTarget: of its users one is retired, so that the
// target needs it, and the source has another one back.
func TestI1APoolOfWhatIsRolledBackStaysPausedOnTheTarget(t *testing.T) {
	ref := func(name string) object.Ref {
		return object.Ref{Group: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Namespace: "ns",
			Name: name}
	}
	m := &run{Plan: &Plan{Copy: restore.Plan{Units: []restore.Unit{{Name: "ns/gone"}, {Name: "ns/back"}},
		Shared: restore.Unit{Objects: []restore.Object{
			{Ref: ref("both"), Users: []string{"ns/gone", "ns/back"}},
			{Ref: ref("gone"), Users: []string{"ns/gone"}},
			{Ref: ref("back"), Users: []string{"ns/back"}}}}}},
		results: results{retired: map[string]bool{"ns/gone": true}}}
	var c *catalog.Catalog
	c, m.Journal = newJournal(t, catalog.Options{})
	pools, err := m.poolsThatStay(t.Context(), map[object.Ref]bool{ref("both"): true,
		ref("gone"): true, ref("back"): false})
	if err != nil || !pools[ref("both")] || pools[ref("gone")] || pools[ref("back")] {
		t.Errorf("paused stay %v, %v", pools, err)
	}
	found := findingsOf(t, c, m.Journal)
	if len(found) != 1 || found[0].Code != object.CodePoolShared || found[0].Ref != ref("both") {
		t.Errorf("findings: %v", found)
	}
}

// TestAResumeAsksNothingOfTheOwnersOfWhatIsRolledBack: their tools work for it on the source again.
func TestAResumeAsksNothingOfTheOwnersOfWhatIsRolledBack(t *testing.T) {
	k := kube.Kind{GroupKind: object.GroupKind{Group: "kustomize.toolkit.fluxcd.io",
		Kind: "Kustomization"}, Version: "v1", Resource: "kustomizations", Namespaced: true}
	owner := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: "ns", Name: "apps"}
	reader := serve(t, map[string]string{
		"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/ns/kustomizations/apps": `{"apiVersion":
			"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","metadata":{"namespace":"ns",
			"name":"apps"},"spec":{"suspend":false}}`})
	m := &run{Plan: &Plan{Suspend: []Suspension{{Owner: owner, Units: []string{"ns/a", "ns/b"}}}},
		Units: map[string]catalog.UnitState{}, results: results{retired: map[string]bool{}},
		pauser: fence.NewPauser(reader, nil, []kube.Kind{k}, nil)}
	for _, tt := range []struct {
		a, b    catalog.UnitState
		refuses bool
	}{
		{catalog.UnitHandedOver, catalog.UnitRolledBack, true},
		{catalog.UnitRolledBack, catalog.UnitGivenBack, false},
		{catalog.UnitBlocked, catalog.UnitRolledBack, false},
		{catalog.UnitRetired, catalog.UnitRolledBack, true}, // it would create that again
	} {
		m.Units["ns/a"], m.Units["ns/b"] = tt.a, tt.b
		m.results.retired["ns/a"] = tt.a == catalog.UnitRetired
		if got := len(m.suspends()) > 0; got != tt.refuses {
			t.Errorf("%s and %s: its owner is suspended: %v", tt.a, tt.b, got)
		}
		err := m.checkSuspended(t.Context())
		if _, is := errors.AsType[*ResumedError](err); is != tt.refuses || !is && err != nil {
			t.Errorf("%s and %s: %v", tt.a, tt.b, err)
		}
	}
}

// TestAnOwnerIsResumedOnceAllOfItHasLeftTheMove: what it applies is at work on the source, as when
// the target refuses it. No rollback comes after such a move. Another operation may have moved it
// since.
func TestAnOwnerIsResumedOnceAllOfItHasLeftTheMove(t *testing.T) {
	k := kube.Kind{GroupKind: object.GroupKind{Group: "kustomize.toolkit.fluxcd.io",
		Kind: "Kustomization"}, Version: "v1", Resource: "kustomizations", Namespaced: true}
	clusters := kube.Kind{GroupKind: capi.Cluster, Version: "v1beta2", Resource: "clusters",
		Namespaced: true}
	owner := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: "ns", Name: "apps"}
	for _, tt := range []struct {
		a, b  catalog.UnitState
		there []string // on the source
		stays string   // for these
	}{
		{catalog.UnitRolledBack, catalog.UnitBlocked, []string{"a", "b"}, ""},
		{catalog.UnitRolledBack, catalog.UnitBlocked, []string{"b"}, "(ns/a)"},
		{catalog.UnitRetired, catalog.UnitRolledBack, []string{"b"}, "(ns/a)"},
		// A resume goes on with it.
		{catalog.UnitRolledBack, catalog.UnitPending, []string{"a", "b"}, "(ns/b)"},
	} {
		api := &policies{objects: map[string]*unstructured.Unstructured{k.Kind: {Object: map[string]any{
			"apiVersion": k.APIVersion(), "kind": k.Kind, "metadata": map[string]any{"namespace": "ns",
				"name": "apps"}, "spec": map[string]any{}}}}}
		answers := map[string]string{"/apis/cluster.x-k8s.io/v1beta2/clusters": `{"kind":"ClusterList",
			"apiVersion":"cluster.x-k8s.io/v1beta2","metadata":{"resourceVersion":"1"},"items":[]}`}
		for _, name := range tt.there {
			path := "/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/clusters/" + name
			answers[path] = core("Cluster", name, "")
		}
		source := Mgmt{Reader: serve(t, answers), Kinds: []kube.Kind{k, clusters}}
		m := &run{Options: Options{Ends: Ends{Source: source}}, Plan: &Plan{
			Suspend: []Suspension{{Owner: owner, Units: []string{"ns/a", "ns/b"}}}},
			Units: map[string]catalog.UnitState{"ns/a": tt.a, "ns/b": tt.b}, results: results{
				retired: map[string]bool{"ns/a": tt.a == catalog.UnitRetired}},
			pauser: fence.NewPauser(api, api, []kube.Kind{k}, nil)}
		var c *catalog.Catalog
		c, m.Journal = newJournal(t, catalog.Options{})
		suspended := func() bool {
			is, _, _ := unstructured.NestedBool(api.objects[k.Kind].Object, "spec", "suspend")
			return is
		}
		err := m.Journal.Do(t.Context(), suspendStep(), func(ctx context.Context,
			h *catalog.StepHandle) error {
			return m.suspendOwner(ctx, h, owner)
		})
		if err != nil || !suspended() {
			t.Fatalf("suspended: %t, %v", suspended(), err)
		}
		api.objects[k.Kind].SetManagedFields([]metav1.ManagedFieldsEntry{{ // as an API server does
			Manager: kube.DefaultFieldManager, Operation: metav1.ManagedFieldsOperationUpdate,
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:suspend":{}}}`)}})
		err = m.endSuspensions(t.Context())
		found := ""
		for _, f := range findingsOf(t, c, m.Journal) {
			found += f.Message
		}
		if err != nil || suspended() != (tt.stays != "") || (found == "") != (tt.stays == "") ||
			!strings.Contains(found, tt.stays) {
			t.Errorf("%s and %s, of which %v are there: suspended: %t, %v, %v", tt.a, tt.b, tt.there,
				suspended(), err, found)
		}
	}
}

// TestWhatOthersHaveComeToUseIsGivenBackAsWell: the object of a unit has a switch of its own, and
// a new process gives the unit back after another workload cluster has come to use it.
func TestWhatOthersHaveComeToUseIsGivenBackAsWell(t *testing.T) {
	pool := func(name string) object.Ref {
		return object.Ref{Group: "ipam.metal3.io", Kind: "IPPool", Namespace: "ns", Name: name}
	}
	node := func(ref object.Ref, needs ...string) *graph.Node {
		n := &graph.Node{Ref: ref, UID: ref.Name}
		for _, name := range needs {
			n.Needs = append(n.Needs, graph.Need{Ref: pool(name)})
		}
		return n
	}
	cluster := func(name string) object.Ref {
		return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: "ns", Name: name}
	}
	v := finishedCapture(time.Now(), nil, nil)
	v.enough, v.graph = true, graph.New([]*graph.Node{node(cluster("a"), "own", "shared"),
		node(cluster("b"), "other", "shared"), node(pool("own")), node(pool("shared")),
		node(pool("unused")), node(pool("other"))}, nil)
	m := &run{captures: &captureCache{latest: v}, switches: map[string][]object.Ref{"ns/a": {
		pool("own"), pool("shared"), pool("unused"), pool("other"), pool("gone")}}}
	_, nodes, err := m.switchedOf(t.Context(), "ns/a")
	var got []string
	for _, n := range nodes {
		if got = append(got, n.UID); n.Unit != "ns/a" {
			t.Errorf("%s counts for %q", n.UID, n.Unit)
		}
	}
	if want := []string{"a", "own", "shared", "unused"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("given back are %v, %v, want %v", got, err, want)
	}
}

// TestAHostThatWakesUpPausesNoSharedObject: another host has taken the operation over.
func TestAHostThatWakesUpPausesNoSharedObject(t *testing.T) {
	k := kube.Kind{GroupKind: object.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"},
		Version: "v1alpha1", Resource: "baremetalhosts", Namespaced: true}
	host := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: "ns", Name: "h"}
	reader := serve(t, map[string]string{"/apis/metal3.io/v1alpha1/namespaces/ns/baremetalhosts/h": `{
		"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost","metadata":{"namespace":"ns",
		"name":"h"}}`})
	errLost := errors.New("another host has taken over")
	c, j := newJournal(t, catalog.Options{})
	m := &run{pauser: fence.NewPauser(reader, nil, []kube.Kind{k}, nil)} // a write would panic
	m.Journal = c.Journal(j.Operation(), catalog.JournalOptions{
		Alive: func(context.Context) error { return errLost }})
	err := m.changeShared(t.Context(), []restore.Object{{Ref: host}},
		func(*unstructured.Unstructured) (bool, error) { return true, nil })
	if !errors.Is(err, errLost) {
		t.Errorf("it ended with %v", err)
	}
}

// TestAnErrorBesideWhatIsHandedOver: it does not say that all others are as they were.
func TestAnErrorBesideWhatIsHandedOver(t *testing.T) {
	for left, want := range map[bool]string{false: "all others are as they were",
		true: "the rollback of others failed"} {
		e := &ForwardError{Units: []string{"ns/a"}, Left: left}
		if !strings.Contains(e.Error(), want) || strings.Contains(e.Hint(), "moves the others") != left {
			t.Errorf("%v: %s: %s", left, e, e.Hint())
		}
	}
}

// TestWhatNoUnitTakesAlongIsReported: the workload clusters that it was to be moved with are gone,
// or their batch has left it out.
func TestWhatNoUnitTakesAlongIsReported(t *testing.T) {
	secret := func(name string) restore.Object {
		return restore.Object{Ref: object.Ref{Kind: "Secret", Namespace: "ns", Name: name},
			Action: restore.Create}
	}
	at := func(name string) string { return "/api/v1/namespaces/ns/secrets/" + name }
	text := `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"}}`
	c, j := newJournal(t, catalog.Options{})
	used := secret("used") // not any more: a unit that moved had it in the plan
	used.Users = []string{"other/w"}
	skipped := secret("skipped")
	skipped.Action = restore.Skip
	busy := secret("busy")
	busy.Users = used.Users
	leftOut := busy
	leftOut.Action = restore.Skip
	m := &run{Plan: &Plan{Copy: restore.Plan{Shared: restore.Unit{Objects: []restore.Object{
		secret("moved"), secret("left"), secret("deleted"), skipped, used, busy}},
		Units: []restore.Unit{{Name: "other/w"}}}},
		batches: []*batch{{Copy: restore.Plan{Shared: restore.Unit{
			Objects: []restore.Object{secret("moved"), leftOut}},
			Findings: []object.Finding{{Ref: busy.Ref, Message: "its controller is at work"}}}}}}
	m.Journal = j
	m.Source = Mgmt{Reader: serve(t, map[string]string{at("moved"): text, at("left"): text,
		at("skipped"): text, at("used"): text, at("busy"): text}), Kinds: []kube.Kind{{GroupKind: capi.Secret, Version: "v1",
		Resource: "secrets", Namespaced: true}}}
	if err := m.reportNotMoved(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := findingsOf(t, c, j)
	if len(found) != 2 || found[0].Code != object.CodeSharedKept || found[0].Ref.Name != "left" ||
		found[1].Ref.Name != "busy" || !strings.HasSuffix(found[1].Message, ": its controller is at work") {
		t.Errorf("findings: %v", found)
	}
}

// TestOneDamagedRecordIsAboutOneUnit: whether the others are handed over is known. When the store
// does not answer, nobody asks it for each of them.
func TestOneDamagedRecordIsAboutOneUnit(t *testing.T) {
	st, root := newStore(t)
	b := &batch{}
	for _, name := range []string{"damaged", "forward", "back"} {
		b.Copy.Units = append(b.Copy.Units, restore.Unit{Name: "ns/" + name, WorkloadID: name})
	}
	m := &run{Plan: &Plan{Source: sideOf("a"), Target: sideOf("b")}, Operation: "0123456789ab",
		Units: map[string]catalog.UnitState{}, batches: []*batch{b}}
	m.Store = st
	_, m.Journal = newJournal(t, catalog.Options{})
	for _, u := range b.Copy.Units[:2] {
		if err := ownership.Claim(t.Context(), st, m.request(u)); err != nil {
			t.Fatal(err)
		}
	}
	record := filepath.Join(root, "owners", "damaged.json")
	if err := os.WriteFile(record, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	forward, stuck, errs := m.forward(t.Context())
	if !slices.Equal(forward, []string{"ns/forward"}) || !stuck["ns/damaged"] || len(stuck) != 1 ||
		len(errs) != 1 {
		t.Errorf("forward %v, stuck %v, %v", forward, stuck, errs)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if forward, stuck, errs = m.forward(ended); len(forward)+len(stuck) > 0 || len(errs) != 1 {
		t.Errorf("without an answer: forward %v, stuck %v, %v", forward, stuck, errs)
	}
}

// TestAHandOverThatFailsAnywayIsTakenBack: another management cluster has claimed the unit since,
// so that its copy can go. One that the target has is left alone, and so is one that was given
// back.
func TestAHandOverThatFailsAnywayIsTakenBack(t *testing.T) {
	st, _ := newStore(t)
	errFailed := errors.New("it failed")
	for by, tt := range map[string]struct {
		state catalog.UnitState
		want  catalog.StepState
		stuck bool
	}{
		"c": {catalog.UnitCopied, catalog.StepUndone, false},
		"b": {catalog.UnitCopied, catalog.StepFailed, true},
		"a": {catalog.UnitCopied, catalog.StepUndone, false},
		"d": {catalog.UnitGivenBack, catalog.StepFailed, false},
	} {
		u := restore.Unit{Name: "ns/" + by, WorkloadID: by}
		m := &run{Plan: &Plan{Source: sideOf("a"), Target: sideOf("b"),
			Copy: restore.Plan{Units: []restore.Unit{u}}}, Operation: "0123456789ab", Attempt: 2,
			Units: map[string]catalog.UnitState{u.Name: tt.state}, epochs: map[string]int64{},
			batches: []*batch{{Copy: restore.Plan{Units: []restore.Unit{u}}}}}
		m.Store = st
		_, m.Journal = newJournal(t, catalog.Options{})
		if err := m.Journal.Do(t.Context(), handOverStep(u.Name), func(context.Context,
			*catalog.StepHandle) error {
			return errFailed
		}); !errors.Is(err, errFailed) {
			t.Fatal(err)
		}
		if err := ownership.Claim(t.Context(), st, ownership.Request{WorkloadID: by, Workload: u.Name,
			To: sideOf(by), Operation: "0123456789ac"}); err != nil {
			t.Fatal(err)
		}
		stuck := map[string]bool{}
		errs := m.takeBackHandOvers(t.Context(), func(string) bool { return true }, stuck)
		state, err := m.Journal.State(t.Context(), handOverStep(u.Name))
		if err != nil || state != tt.want || stuck[u.Name] != tt.stuck || (len(errs) > 0) != tt.stuck {
			t.Errorf("%s has claimed it: state %s, stuck %v, %v, %v", by, state, stuck, errs, err)
		}
	}
}

// TestWhatStaysOnTheTargetStaysWithWhatItNeeds: a rule that may have users, and a template that is
// there alone, with its owners and what it names; but no host and no pool, which would be released
// while the source works with them.
func TestWhatStaysOnTheTargetStaysWithWhatItNeeds(t *testing.T) {
	t.Parallel()
	ref := func(group, kind, name string) object.Ref {
		return object.Ref{Group: group, Kind: kind, Namespace: "team", Name: name}
	}
	const infrastructure, metal3 = "infrastructure.cluster.x-k8s.io", "metal3.io"
	cluster, class := ref(capi.GroupCore, "Cluster", "w"), ref(capi.GroupCore, "ClusterClass", "c")
	rule := ref(capi.GroupCore, "MachineDrainRule", "rule")
	template := ref(infrastructure, "DevMachineTemplate", "template")
	secret, other := ref("", "Secret", "named"), ref("", "Secret", "other")
	host, settings := ref(metal3, "BareMetalHost", "h"), ref(metal3, "HostFirmwareSettings", "h")
	pool := ref(capi.GroupIPAM, "InClusterIPPool", "pool")
	everywhere := object.Ref{Group: capi.GroupIPAM, Kind: "GlobalInClusterIPPool", Name: "pool"}
	g := graph.New([]*graph.Node{{Ref: cluster, UID: "w"}, {Ref: class, UID: "c"}, {Ref: rule},
		{Ref: template, UID: "t", Owners: []graph.Owner{{Ref: class, UID: "c"}},
			Needs: []graph.Need{{Ref: secret}, {Ref: pool}}},
		{Ref: secret}, {Ref: other}, {Ref: host, UID: "h"},
		{Ref: settings, Owners: []graph.Owner{{Ref: host, UID: "h"}}}, {Ref: pool},
		{Ref: everywhere}}, nil)
	m := &run{}
	for ref, want := range map[object.Ref]bool{rule: true, secret: true, template: false,
		class: false, settings: false, host: false, pool: false, everywhere: false} {
		if got := m.mayBeUsed(g, ref); got != want {
			t.Errorf("%s may be used: %t", ref, got)
		}
	}
	ours := map[object.Ref]bool{class: true, template: true, secret: true, other: true, host: true,
		settings: true, pool: true}
	needed := map[object.Ref]bool{}
	m.addNeeds(g, ours, needed, []*graph.Node{g.Node(template), g.Node(settings)})
	want := []object.Ref{template, class, secret, settings}
	for ref := range ours {
		if needed[ref] != slices.Contains(want, ref) {
			t.Errorf("%s stays: %t", ref, needed[ref])
		}
	}
}
