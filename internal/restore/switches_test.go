package restore

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// The objects of a workload cluster whose switches are not of Cluster API.
const (
	addonRef      = "HelmRelease.addons.stackhpc.com/n/cni"
	resourceRef   = "VirtualNetwork.network.azure.com/n/net"
	metal3PoolRef = "IPPool.ipam.metal3.io/n/pool"

	sourceAddon = `{"kind":"HelmRelease","metadata":{"namespace":"n","name":"cni","annotations":` +
		`{"addons.stackhpc.com/last-handled-configuration":"source"}},"spec":{"clusterName":"w"},` +
		`"status":{"phase":"Deployed"}}`
	sourceResource = `{"kind":"VirtualNetwork","metadata":{"namespace":"n","name":"net","annotations":` +
		`{"serviceoperator.azure.com/reconcile-policy":"manage",` +
		`"clusterctl.cluster.x-k8s.io/block-move":"true"},` +
		`"ownerReferences":[{"kind":"DevCluster","name":"w"}]},"spec":{},"status":{"id":"source"}}`
	sourceMetal3Pool = `{"kind":"IPPool","metadata":{"namespace":"n","name":"pool",` +
		`"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{"clusterName":"w"}}`
)

// TestEachSwitchIsSetUntilItsReleaseAndGivenBackInOrder: copies are paused by the switch of their
// own provider. Its controllers write the annotations and the status that are theirs meanwhile,
// which keeps nothing paused.
func TestEachSwitchIsSetUntilItsReleaseAndGivenBackInOrder(t *testing.T) {
	x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra, sourceAddon,
		sourceResource, sourceMetal3Pool), newMemory(t, "target"))
	var created []string
	x.target.onCreate = func(u *unstructured.Unstructured) {
		if !(*capi.Table)(nil).RowOf(u.Object).Pause.IsSet(u.Object) {
			return
		}
		created = append(created, refOf(u).String())
		switch refOf(u).String() {
		case addonRef:
			capi.Annotate(u.Object, "addons.stackhpc.com/last-handled-configuration", "target")
		case resourceRef:
			capi.Unannotate(u.Object, capi.AnnotationBlockMove)
		}
	}
	x.target.statusWritten = func(u *unstructured.Unstructured) {
		if ref := refOf(u).String(); ref == addonRef || ref == resourceRef {
			u.Object["status"] = map[string]any{"phase": "Pending"}
		}
	}
	if failures, err := x.run(t); err != nil || x.released(t) != "n/w" {
		t.Fatalf("released %q, failures %q: %v", x.released(t), failures, err)
	}
	for _, ref := range []string{addonRef, resourceRef, metal3PoolRef,
		"Cluster.cluster.x-k8s.io/n/w"} {
		if !slices.Contains(created, ref) {
			t.Errorf("%s was not created paused", ref)
		}
		live := x.target.get(t, ref)
		if capi.PausedByUs(live.Object) || (*capi.Table)(nil).RowOf(live.Object).Pause.IsSet(live.Object) {
			t.Errorf("%s is still paused: %v", ref, live.Object)
		}
	}
	policy := x.target.get(t, resourceRef).GetAnnotations()
	if policy["serviceoperator.azure.com/reconcile-policy"] != "manage" ||
		policy["sigs.k8s.io/cluster-api-provider-azure-pre-pause-reconcile-policy"] != "" {
		t.Errorf("the policy is not given back: %v", policy)
	}
}

// TestReleaseUnpausesAddOnsAfterTheirCluster: their templates read what the Cluster has become.
func TestReleaseUnpausesAddOnsAfterTheirCluster(t *testing.T) {
	r := newRun(t.Context(), RunOptions{Plan: &Plan{}})
	var objects []Object
	for _, ref := range []string{"Cluster.azimuth.stackhpc.com/n/w", addonRef, resourceRef,
		"Secret/n/s", "Cluster.cluster.x-k8s.io/n/w", metal3PoolRef} {
		parsed, err := object.ParseRef(ref)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, Object{Ref: parsed, Action: Create})
	}
	var order []string
	for _, o := range r.switched(Unit{Objects: objects}) {
		order = append(order, o.Ref.String())
	}
	if want := []string{resourceRef, metal3PoolRef, "Cluster.cluster.x-k8s.io/n/w", addonRef,
		"Cluster.azimuth.stackhpc.com/n/w"}; !slices.Equal(order, want) {
		t.Errorf("released in the order %v, want %v", order, want)
	}
}

// TestWhatCannotBePausedBlocksItsUnitAndSaysWhatToDo: a pool whose controller reads no pause.
func TestWhatCannotBePausedBlocksItsUnitAndSaysWhatToDo(t *testing.T) {
	for name, more := range map[string]string{
		"a pool without a Cluster": strings.Replace(sourceMetal3Pool, `"clusterName":"w"`, "", 1),
	} {
		x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra, more),
			newMemory(t, "target"))
		plan := x.makePlan(t)
		found := slices.ContainsFunc(plan.Findings, func(f object.Finding) bool {
			return f.Code == object.CodePauseUnsupported && f.Severity == object.Error &&
				strings.Contains(f.Hint, "by hand")
		})
		if !found || len(plan.Units) != 1 || !plan.Units[0].Blocked {
			t.Errorf("%s: %v", name, plan.Findings)
		}
	}
}

// TestControllersThatIgnoreAPauseBlockAPlan until the operator says that they are stopped. The copy
// comes with the others then, before the release.
func TestControllersThatIgnoreAPauseBlockAPlan(t *testing.T) {
	x := newTrial(t, newMemory(t, "source", needsNamespace, `{"kind":"Cluster","metadata":{
		"namespace":"n","name":"w"},"spec":{"infrastructureRef":{"apiGroup":
		"infrastructure.cluster.x-k8s.io","kind":"KubevirtCluster","name":"w"}}}`,
		`{"kind":"KubevirtCluster","metadata":{"namespace":"n","name":"w","labels":{
		"cluster.x-k8s.io/cluster-name":"w"}},"spec":{}}`), newMemory(t, "target"))
	for force, want := range map[object.Code]object.Severity{"": object.Error,
		object.CodePauseIgnored: object.Warning} {
		x.spec.Force = object.Forced{force: ""}
		plan := x.makePlan(t)
		found := slices.ContainsFunc(plan.Findings, func(f object.Finding) bool {
			return f.Code == object.CodePauseIgnored && f.Severity == want &&
				strings.Contains(f.Hint, "capk-controller-manager")
		})
		if !found || plan.Units[0].Blocked != (want == object.Error) {
			t.Errorf("force %q: blocked %v, %v", force, plan.Units[0].Blocked, plan.Findings)
		}
	}
	x.spec.Force = object.Forced{object.CodePauseIgnored: ""}
	if _, err := x.run(t); err != nil || x.released(t) != "n/w" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}

// TestARestoreReleasesWhatAMoveHasLeftPaused: the target of a move is lost after the hand-over, and
// a restore gives the workload cluster back to the source. As long as its Cluster has the lock of
// the move, that may be alive. The locks of other objects go with their pause.
func TestARestoreReleasesWhatAMoveHasLeftPaused(t *testing.T) {
	const cluster, check = "Cluster.cluster.x-k8s.io/n/w", "MachineHealthCheck.cluster.x-k8s.io/n/c"
	site := newMemory(t, "target")
	newSite := func() *trial {
		return newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra, sourceResource,
			`{"kind":"MachineHealthCheck","metadata":{"namespace":"n","name":"c"},
				"spec":{"clusterName":"w"}}`), site)
	}
	if _, err := newSite().run(t); err != nil {
		t.Fatal(err)
	}
	var rows *capi.Table
	for _, ref := range []string{cluster, check, resourceRef} {
		site.set(t, ref, func(u *unstructured.Unstructured) {
			if !rows.Pause(u.Object) && !rows.PauseFirst(u.Object) {
				t.Fatalf("%s has no switch", ref)
			}
			capi.Annotate(u.Object, capi.AnnotationOperation, "moved/1")
		})
	}
	locked := newSite().makePlan(t)
	if got := errorsOf(locked); !slices.Equal(got, []string{"n/w: left-by-operation"}) {
		t.Errorf("while the Cluster has the lock of a move: %q", got)
	}
	for _, f := range locked.Findings {
		if f.Code == object.CodeLeftByOperation && (!strings.Contains(f.Message, "operation moved moves") ||
			!strings.Contains(f.Hint, "remove the annotation "+capi.AnnotationOperation)) {
			t.Errorf("%s: %s", f.Message, f.Hint)
		}
	}

	unlock := func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationOperation)
	}
	site.set(t, cluster, unlock)
	x := newSite()
	x.begin(t)
	// a move has locked it again since
	site.set(t, cluster, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, capi.AnnotationOperation, "other/1")
	})
	if _, err := x.run(t); err == nil || x.released(t) != "" {
		t.Errorf("released %q below the lock of another move: %v", x.released(t), err)
	}
	for _, ref := range []string{check, resourceRef} {
		if !capi.PausedByUs(site.get(t, ref).Object) {
			t.Errorf("%s is released below the lock of another move", ref)
		}
	}
	site.set(t, cluster, unlock)
	if failures, err := x.run(t); err != nil || x.released(t) != "n/w" {
		t.Errorf("released %q, failures %q: %v", x.released(t), failures, err)
	}
	for _, ref := range []string{cluster, check, resourceRef} {
		a := site.get(t, ref).GetAnnotations()
		if _, paused := a[capi.AnnotationPaused]; paused || a[capi.AnnotationOperation] == "moved/1" ||
			capi.PausedByUs(site.get(t, ref).Object) {
			t.Errorf("%s has %v", ref, a)
		}
	}
}

// TestARefusedHealthCheckKeepsNoWorkloadClusterPaused: a webhook refuses to unpause what a move has
// left paused by itself. The Cluster is at work by then, as the journal says of a release that has
// begun. One that is gone by now is found after the release.
func TestARefusedHealthCheckKeepsNoWorkloadClusterPaused(t *testing.T) {
	const cluster, check = "Cluster.cluster.x-k8s.io/n/w", "MachineHealthCheck.cluster.x-k8s.io/n/c"
	site := newMemory(t, "target")
	newSite := func() *trial {
		return newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra,
			`{"kind":"MachineHealthCheck","metadata":{"namespace":"n","name":"c"},
				"spec":{"clusterName":"w"}}`), site)
	}
	if _, err := newSite().run(t); err != nil {
		t.Fatal(err)
	}
	leave := func() {
		var rows *capi.Table
		for _, ref := range []string{cluster, check} {
			site.set(t, ref, func(u *unstructured.Unstructured) {
				if !rows.Pause(u.Object) && !rows.PauseFirst(u.Object) {
					t.Fatalf("%s has no switch", ref)
				}
			})
		}
	}
	paused := func(ref string) bool { return capi.PausedByUs(site.get(t, ref).Object) }
	leave()
	x := newSite()
	site.refuseUpdate = refuses(check)
	if _, err := x.run(t); err == nil || paused(cluster) || !paused(check) {
		t.Errorf("the Cluster is paused: %t, the MachineHealthCheck: %t; %v", paused(cluster),
			paused(check), err)
	}
	site.refuseUpdate = nil
	if _, err := x.run(t); err != nil || paused(check) || x.released(t) != "n/w" {
		t.Errorf("after a resume released %q, the MachineHealthCheck is paused: %t; %v", x.released(t),
			paused(check), err)
	}

	leave()
	x = newSite()
	x.hooks.BeforeRelease = func(context.Context, Unit) error {
		site.remove(t, check)
		return nil
	}
	if failures, _ := x.run(t); len(failures) != 1 || !strings.Contains(failures[0], "it is gone") ||
		paused(cluster) {
		t.Errorf("without it: the Cluster is paused: %t; %q", paused(cluster), failures)
	}
}

// TestTheLockOfASharedObjectIsFoundByThePlan: a move has left it on what workload clusters share.
// No Cluster decides for that, so a restore would fail at it after all copies were made.
func TestTheLockOfASharedObjectIsFoundByThePlan(t *testing.T) {
	key := object.Key{Namespace: "one", Name: "w"}
	site := newMemory(t, "target")
	if _, err := newTrial(t, twoTenants(t, address(key), sharedPool), site).run(t); err != nil {
		t.Fatal(err)
	}
	var rows *capi.Table
	site.set(t, sharedPoolRef, func(u *unstructured.Unstructured) {
		rows.Pause(u.Object)
		capi.Annotate(u.Object, capi.AnnotationOperation, "moved/1")
	})
	x := newTrial(t, twoTenants(t, address(key), sharedPool), site)
	plan := x.makePlan(t)
	if !slices.ContainsFunc(plan.Findings, func(f object.Finding) bool {
		return f.Code == object.CodeLeftByOperation && f.Severity == object.Error &&
			f.Ref.String() == sharedPoolRef && strings.Contains(f.Hint, "remove the annotation")
	}) {
		t.Errorf("the plan finds %q", errorsOf(plan))
	}
	site.set(t, sharedPoolRef, func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationOperation)
	})
	x = newTrial(t, twoTenants(t, address(key), sharedPool), site)
	if failures, err := x.run(t); err != nil || capi.PausedByUs(site.get(t, sharedPoolRef).Object) {
		t.Errorf("without the lock: failures %q, %v", failures, err)
	}
}
