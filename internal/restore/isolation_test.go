package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// The refs of twoTenants.
const (
	classOne = "ClusterClass.cluster.x-k8s.io/one/class"
	classTwo = "ClusterClass.cluster.x-k8s.io/two/class"
)

// twoTenants is a management cluster with a workload cluster and a class in each of two
// namespaces.
func twoTenants(t *testing.T, more ...string) *memory {
	t.Helper()
	var objects []string
	for _, ns := range []string{"one", "two"} {
		objects = append(objects,
			fmt.Sprintf(`{"kind":"Namespace","metadata":{"name":%q,"labels":{"team":%q},"annotations":{"cattle.io/status":"old"}}}`, ns, ns),
			fmt.Sprintf(`{"kind":"ClusterClass","metadata":{"namespace":%q,"name":"class"},"spec":{},
				"status":{"observedGeneration":1,"conditions":[{"type":"VariablesReady","status":"True"}]}}`, ns),
			fmt.Sprintf(`{"kind":"Cluster","metadata":{"namespace":%q,"name":"w"},
				"spec":{"topology":{"classRef":{"name":"class"}}}}`, ns))
	}
	return newMemory(t, "source", append(objects, more...)...)
}

// refuses makes a target refuse one object, as a quota does.
func refuses(ref string) func(u *unstructured.Unstructured) error {
	return func(u *unstructured.Unstructured) error {
		if refOf(u).String() == ref {
			return apierrors.NewForbidden(resourceOf(kube.Kind{}), u.GetName(), errors.New("exceeded quota"))
		}
		return nil
	}
}

// TestASharedObjectThatFailsBlocksItsUsersOnly: the class of one workload cluster is refused. The
// other one is restored and released. A resume retries the class alone.
func TestASharedObjectThatFailsBlocksItsUsersOnly(t *testing.T) {
	source := twoTenants(t)
	source.set(t, classTwo, func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"text": "as it was"}
	})
	x := newTrial(t, source, newMemory(t, "target"))
	x.target.refuse = refuses(classOne)
	failures, err := x.run(t)
	incomplete, ok := errors.AsType[*IncompleteError](err)
	if !ok || incomplete.Failed != 1 || x.released(t) != "two/w" {
		t.Fatalf("released %q: %v", x.released(t), err)
	}
	if !slices.ContainsFunc(failures, func(f string) bool {
		return strings.HasPrefix(f, "one/w: ") && strings.Contains(f, classOne) &&
			strings.Contains(f, "exceeded quota")
	}) {
		t.Errorf("no failure names the shared object and its reason: %q", failures)
	}
	if x.target.get(t, "Cluster.cluster.x-k8s.io/one/w") != nil {
		t.Error("the blocked workload cluster was begun")
	}
	// The controllers of the target and its users work on what is there.
	x.target.refuse = nil
	x.target.set(t, classTwo, func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"text": "changed by its user"}
	})
	x.target.created = nil
	if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
		t.Fatalf("resumed: released %q: %v", x.released(t), err)
	}
	var created []string
	for _, ref := range x.target.created {
		created = append(created, ref.String())
	}
	if want := []string{classOne, "Cluster.cluster.x-k8s.io/one/w"}; !slices.Equal(created, want) {
		t.Errorf("the resume created %v, want %v", created, want)
	}
}

// TestAFailedSharedObjectCountsForNoLimit: what it blocks is no reason to begin no further unit.
func TestAFailedSharedObjectCountsForNoLimit(t *testing.T) {
	x := newTrial(t, twoTenants(t), newMemory(t, "target"))
	x.target.refuse = refuses(classOne)
	x.tuning.MaxFailures, x.tuning.Concurrency = 1, 1
	if _, err := x.run(t); x.released(t) != "two/w" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}

// TestASharedObjectThatDiffersBlocksItsUsersOnly: a policy of the target changes one class.
func TestASharedObjectThatDiffersBlocksItsUsersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it waits
		source := twoTenants(t)
		source.set(t, classOne, func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"text": "as it was"}
		})
		x := newTrial(t, source, newMemory(t, "target"))
		x.target.onCreate = func(u *unstructured.Unstructured) {
			if refOf(u).String() == classOne {
				u.Object["spec"] = map[string]any{"text": "changed"}
			}
		}
		failures, err := x.run(t)
		if x.released(t) != "two/w" || !strings.Contains(strings.Join(failures, " "), "spec.text") {
			t.Errorf("released %q, failures %q: %v", x.released(t), failures, err)
		}
	})
}

// TestAClassThatIsNotReconciledBlocksItsUsersOnly: the others do not even wait for it.
func TestAClassThatIsNotReconciledBlocksItsUsersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it waits
		x := newTrial(t, twoTenants(t), newMemory(t, "target"))
		x.tuning.Wait, x.tuning.Concurrency = 20*time.Second, 1
		var blocked string
		x.hooks.OnHealthy = func(u Unit, _ string) {
			if class := x.target.get(t, classOne); class != nil {
				blocked = u.Name
			}
		}
		x.target.onCreate = func(u *unstructured.Unstructured) {
			if refOf(u).String() == classOne {
				u.SetGeneration(5) // and observed is what the status of the snapshot says
				u.Object["status"] = map[string]any{"conditions": []any{}}
			}
		}
		x.target.statusWritten = func(u *unstructured.Unstructured) {
			if refOf(u).String() == classOne {
				u.Object["status"] = map[string]any{"conditions": []any{map[string]any{
					"type": "VariablesReady", "status": "False", "reason": "Failed"}}}
			}
		}
		failures, err := x.run(t)
		if x.released(t) != "two/w" || blocked != "two/w" ||
			!strings.Contains(strings.Join(failures, " "), "VariablesReady") {
			t.Errorf("released %q, failures %q: %v", x.released(t), failures, err)
		}
	})
}

// TestAClassWithoutItsTemplateIsNotWaitedFor: its template is refused, so it will not be
// reconciled, and its users are blocked already.
func TestAClassWithoutItsTemplateIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time passes at once
		x := newTrial(t, withTemplate(t), newMemory(t, "target"))
		x.tuning.Wait = time.Hour
		x.target.refuse = refuses(templateOne)
		x.target.statusWritten = func(u *unstructured.Unstructured) {
			if refOf(u).String() == classOne {
				u.Object["status"] = map[string]any{"conditions": []any{map[string]any{
					"type": "VariablesReady", "status": "False", "reason": "Failed"}}}
			}
		}
		began := time.Now()
		failures, err := x.run(t)
		if x.released(t) != "two/w" || time.Since(began) >= x.tuning.Wait {
			t.Errorf("released %q after %s: %q: %v", x.released(t), time.Since(began), failures, err)
		}
		x.target.refuse = nil
		x.target.set(t, classOne, func(u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"conditions": []any{map[string]any{
				"type": "VariablesReady", "status": "True"}}}
		})
		if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
			t.Errorf("resumed: released %q: %v", x.released(t), err)
		}
	})
}

// TestATerminatingNamespaceBlocksItsUnitsOnly: found when the plan is made, and during the run.
func TestATerminatingNamespaceBlocksItsUnitsOnly(t *testing.T) {
	terminate := func(u *unstructured.Unstructured) {
		now := metav1.Now()
		u.SetDeletionTimestamp(&now)
	}
	t.Run("planned", func(t *testing.T) {
		target := newMemory(t, "target",
			`{"kind":"Namespace","metadata":{"name":"one","labels":{"team":"one"}}}`)
		target.set(t, "Namespace/one", terminate)
		x := newTrial(t, twoTenants(t), target)
		p := x.makePlan(t)
		if len(p.Units) != 2 || !p.Units[0].Blocked || p.Units[1].Blocked || p.Blocked {
			t.Fatalf("units %v: %v", p.Units, p.Findings)
		}
		if !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
			return f.Code == object.CodeExistsDeleting && f.Unit == "one/w" && f.Hint != "" &&
				f.Ref.String() == "Namespace/one" && strings.Contains(f.Message, "namespace")
		}) {
			t.Errorf("findings %v", p.Findings)
		}
		if _, err := x.run(t); x.released(t) != "two/w" {
			t.Errorf("released %q: %v", x.released(t), err)
		}
	})
	t.Run("during the run", func(t *testing.T) {
		x := newTrial(t, twoTenants(t), newMemory(t, "target"))
		x.target.onCreate = func(u *unstructured.Unstructured) {
			if refOf(u).String() == "Namespace/one" {
				terminate(u)
			}
		}
		failures, err := x.run(t)
		if x.released(t) != "two/w" {
			t.Fatalf("released %q: %v", x.released(t), err)
		}
		if !slices.ContainsFunc(failures, func(f string) bool {
			return strings.HasPrefix(f, "one/w: ") && strings.Contains(f, "Namespace/one")
		}) {
			t.Errorf("no failure names the namespace: %q", failures)
		}
	})
	t.Run("in the middle of a unit", func(t *testing.T) {
		x := newTrial(t, twoTenants(t, `{"kind":"IPAddressClaim","metadata":{"namespace":"one",
			"name":"x","labels":{"cluster.x-k8s.io/cluster-name":"w"}},"spec":{}}`), newMemory(t, "target"))
		x.target.onCreate = func(u *unstructured.Unstructured) {
			if refOf(u).String() == "Cluster.cluster.x-k8s.io/one/w" {
				terminate(x.target.objects[object.Ref{Kind: "Namespace", Name: "one"}])
			}
		}
		_, err := x.run(t)
		if x.released(t) != "two/w" || !strings.Contains(object.HintOf(err), "conditions") {
			t.Errorf("released %q: %v (%s)", x.released(t), err, object.HintOf(err))
		}
	})
}

// TestASharedObjectWithoutUsersBlocksNoUnit: the run is incomplete and names the object.
func TestASharedObjectWithoutUsersBlocksNoUnit(t *testing.T) {
	const unused = "ClusterClass.cluster.x-k8s.io/one/unused"
	x := newTrial(t, twoTenants(t,
		`{"kind":"ClusterClass","metadata":{"namespace":"one","name":"unused"},"spec":{}}`),
		newMemory(t, "target"))
	x.target.refuse = refuses(unused)
	failures, err := x.run(t)
	if x.released(t) != "one/w two/w" || err == nil || !strings.Contains(err.Error(), unused) ||
		!strings.Contains(strings.Join(failures, " "), "exceeded quota") {
		t.Errorf("released %q, failures %q: %v", x.released(t), failures, err)
	}
}

// TestAnOldPlanWithoutUsersBlocksEveryUnit: such a plan does not say who needs a shared object.
func TestAnOldPlanWithoutUsersBlocksEveryUnit(t *testing.T) {
	x := newTrial(t, twoTenants(t), newMemory(t, "target"))
	x.plan = x.makePlan(t)
	text, err := json.Marshal(x.plan)
	if err != nil {
		t.Fatal(err)
	}
	x.plan = &Plan{}
	if err := json.Unmarshal(text, x.plan); err != nil {
		t.Fatal(err)
	}
	for i := range x.plan.Shared.Objects {
		x.plan.Shared.Objects[i].Users = nil
	}
	op, err := x.catalog.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	x.id = op.ID
	x.target.refuse = refuses(classOne)
	if _, err := x.run(t); err == nil || x.released(t) != "" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}

// TestAnnotationsOfANamespaceAreAWarning: controllers of the target write them. A label with
// another value is an error.
func TestAnnotationsOfANamespaceAreAWarning(t *testing.T) {
	target := newMemory(t, "target",
		`{"kind":"Namespace","metadata":{"name":"one","labels":{"team":"one"},"annotations":{"cattle.io/status":"new"}}}`,
		`{"kind":"Namespace","metadata":{"name":"two","labels":{"team":"other","more":"x"}}}`)
	x := newTrial(t, twoTenants(t), target)
	p := x.makePlan(t)
	if p.Units[0].Blocked || !p.Units[1].Blocked {
		t.Fatalf("one blocked %v, two blocked %v: %v", p.Units[0].Blocked, p.Units[1].Blocked, p.Findings)
	}
	if !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
		return f.Severity == object.Warning && f.Ref.String() == "Namespace/one" &&
			strings.Contains(f.Message, "cattle.io/status")
	}) {
		t.Errorf("no warning: %v", p.Findings)
	}
}

// TestAnAnnotationThatTheTargetRewritesBlocksNothing: Rancher rewrites its own right after the
// namespace was created.
func TestAnAnnotationThatTheTargetRewritesBlocksNothing(t *testing.T) {
	x := newTrial(t, twoTenants(t), newMemory(t, "target"))
	x.target.onCreate = func(u *unstructured.Unstructured) {
		if u.GetKind() == "Namespace" {
			a := u.GetAnnotations()
			a["cattle.io/status"] = "new"
			u.SetAnnotations(a)
		}
	}
	if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}

// TestObjectsOfUnitsComeAfterTheirSharedOwner: a HelmChartProxy of two workload clusters owns a
// HelmReleaseProxy of each. Both are paused. Objects of the other two kinds, of which no pause is
// known, come after the release. That one of the two fails leaves the other one whole.
func TestObjectsOfUnitsComeAfterTheirSharedOwner(t *testing.T) {
	for _, kinds := range [][2]string{{"HelmChartProxy.addons.cluster.x-k8s.io",
		"HelmReleaseProxy.addons.cluster.x-k8s.io"}, {"Chart.example.org", "Release.example.org"}} {
		t.Run(kinds[0], func(t *testing.T) { testSharedOwner(t, kinds[0], kinds[1]) })
	}
}

func testSharedOwner(t *testing.T, owners, owned string) {
	t.Helper()
	ownerKind, _, _ := strings.Cut(owners, ".")
	ownedKind, _, _ := strings.Cut(owned, ".")
	release := func(workload string) string {
		return fmt.Sprintf(`{"kind":%q,"metadata":{"namespace":"one","name":"chart-%s",
			"labels":{"cluster.x-k8s.io/cluster-name":%q},
			"ownerReferences":[{"kind":%q,"name":"chart"}]},"spec":{}}`, ownedKind, workload, workload,
			ownerKind)
	}
	const other = "Cluster.cluster.x-k8s.io/one/v"
	chart := owners + "/one/chart"
	x := newTrial(t, twoTenants(t, release("w"), release("v"),
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"v"},"spec":{}}`,
		fmt.Sprintf(`{"kind":%q,"metadata":{"namespace":"one","name":"chart"},"spec":{}}`, ownerKind)),
		newMemory(t, "target"))
	x.target.refuse = refuses(other)
	if _, err := x.run(t); err == nil || x.released(t) != "one/w two/w" {
		t.Fatalf("released %q: %v", x.released(t), err)
	}
	check := func(workload string) {
		t.Helper()
		owner := x.target.get(t, chart)
		u := x.target.get(t, owned+"/one/chart-"+workload)
		if owner == nil || u == nil || len(u.GetOwnerReferences()) != 1 ||
			u.GetOwnerReferences()[0].UID != owner.GetUID() {
			t.Errorf("the release of %s is %v, its owner %v", workload, u, owner)
		}
	}
	check("w")
	x.target.refuse = nil
	if _, err := x.run(t); err != nil || x.released(t) != "one/v one/w two/w" {
		t.Fatalf("resumed: released %q: %v", x.released(t), err)
	}
	check("v")
}

// TestAFailedUnitHoldsNoClusterScopedSwitch: a pool of addresses is released when the units that
// use it are, whatever becomes of the others.
func TestAFailedUnitHoldsNoClusterScopedSwitch(t *testing.T) {
	const (
		mine   = "GlobalInClusterIPPool.ipam.cluster.x-k8s.io/mine"
		theirs = "GlobalInClusterIPPool.ipam.cluster.x-k8s.io/theirs"
	)
	claim := func(ns, pool string) string {
		return fmt.Sprintf(`{"kind":"IPAddressClaim","metadata":{"namespace":%q,"name":"claim",
			"labels":{"cluster.x-k8s.io/cluster-name":"w"}},
			"spec":{"poolRef":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"GlobalInClusterIPPool","name":%q}}}`,
			ns, pool)
	}
	for _, dry := range []bool{false, true} { // it fails, or is refused before anything is created
		x := newTrial(t, twoTenants(t, claim("one", "mine"), claim("two", "theirs"),
			`{"kind":"GlobalInClusterIPPool","metadata":{"name":"mine"},"spec":{}}`,
			`{"kind":"GlobalInClusterIPPool","metadata":{"name":"theirs"},"spec":{}}`),
			newMemory(t, "target"))
		if refused := refuses("Cluster.cluster.x-k8s.io/two/w"); dry {
			x.target.refuseDry = refused
		} else {
			x.target.refuse = refused
		}
		if _, err := x.run(t); err == nil || x.released(t) != "one/w" {
			t.Fatalf("released %q: %v", x.released(t), err)
		}
		paused := func(ref string) bool { return capi.PausedByUs(x.target.get(t, ref).Object) }
		if paused(mine) || !paused(theirs) {
			t.Errorf("the pool in use is paused: %v, the one of the failed unit: %v", paused(mine),
				paused(theirs))
		}
		x.target.refuse, x.target.refuseDry = nil, nil
		if _, err := x.run(t); err != nil || paused(theirs) {
			t.Errorf("resumed: the pool is paused: %v: %v", paused(theirs), err)
		}
	}
}
