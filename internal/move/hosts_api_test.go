//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

const hostPaused = "baremetalhost.metal3.io/paused"

// The hosts of the fleet, each with its state: the second is one that nobody uses.
var (
	usedHost   = classyUnits[0] + "-host"
	hostStates = map[string]string{usedHost: "provisioned", "free": "available"}
)

// makeHosts makes a host that a Machine of the fleet uses, with its Secret and its hardware, and a
// free one. They have the finalizers of their operator.
func (fx *fixture) makeHosts() {
	fx.t.Helper()
	make := func(group, kind, text string) *unstructured.Unstructured {
		k := fx.kind(fx.at, object.GroupKind{Group: group, Kind: kind})
		u := &unstructured.Unstructured{}
		must(fx.t, json.Unmarshal([]byte(text), &u.Object))
		status := u.Object["status"]
		u.SetAPIVersion(k.APIVersion())
		u.SetKind(kind)
		u.SetNamespace(fx.namespace)
		u, err := fx.source().Writer().Create(fx.t.Context(), k, u)
		if err == nil && status != nil {
			u.Object["status"] = status
			u, err = fx.source().Writer().UpdateStatus(fx.t.Context(), k, u)
		}
		must(fx.t, err)
		return u
	}
	var machine *unstructured.Unstructured
	for ref, u := range fx.was {
		if ref.Kind == "DevMachine" && unitName(ref.Name) == classyUnits[0] {
			machine = u
		}
	}
	named := fmt.Sprintf(`"apiVersion":%q,"kind":"DevMachine","name":%q`, machine.GetAPIVersion(),
		machine.GetName())
	host := make("metal3.io", "BareMetalHost", `{"metadata":{"name":"`+usedHost+
		`","ownerReferences":[{`+named+`,"uid":"`+string(machine.GetUID())+`"}],
		"finalizers":["baremetalhost.metal3.io"]},
		"spec":{"online":true,"bmc":{"address":"ipmi://192.0.2.1","credentialsName":"bmc"},
			"consumerRef":{`+named+`,"namespace":"`+fx.namespace+`"},
			"image":{"url":"http://images/v1.raw","checksum":"c"}},
		"status":{"errorCount":0,"errorMessage":"","operationalStatus":"OK","poweredOn":true,
			"lastUpdated":"2026-01-02T03:04:05Z","provisioning":{"state":"provisioned","ID":"7",
				"image":{"url":"http://images/v1.raw","checksum":"c"}}}}`)
	owner := fmt.Sprintf(
		`"ownerReferences":[{"apiVersion":%q,"kind":"BareMetalHost","name":%q,"uid":%q}]`,
		host.GetAPIVersion(), host.GetName(), host.GetUID())
	make("", "Secret", `{"metadata":{"name":"bmc","finalizers":["baremetalhost.metal3.io/secret"],`+
		owner+`},"data":{"username":"YQ=="}}`)
	make("metal3.io", "HardwareData", `{"metadata":{"name":"`+usedHost+
		`","finalizers":["baremetalhost.metal3.io/hardwareData"],`+owner+`},"spec":{}}`)
	make("metal3.io", "HostFirmwareSettings", `{"metadata":{"name":"`+usedHost+`",`+owner+`},
		"spec":{"settings":{}}}`)
	make("metal3.io", "BareMetalHost", `{"metadata":{"name":"free",
		"finalizers":["baremetalhost.metal3.io"]},"spec":{"online":false},
		"status":{"errorCount":0,"errorMessage":"","operationalStatus":"OK","poweredOn":false,
			"lastUpdated":"2026-01-02T03:04:05Z","provisioning":{"state":"available","ID":"8"}}}`)
	must(fx.t, fx.awaitQuiet())
}

// watchHosts stands in for the Bare Metal Operators of both sides until stop is called: they act
// on a host without a pause. stop returns what they would have done to a machine.
func (fx *fixture) watchHosts() (stop func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var seen []string
	add := func(text string) {
		if mu.Lock(); !slices.Contains(seen, text) {
			seen = append(seen, text)
		}
		mu.Unlock()
	}
	k := fx.kind(0, object.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"})
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			for name, state := range hostStates {
				atWork := 0
				for i, s := range fx.sides {
					u, err := s.Reader().Get(ctx, k, fx.namespace, name)
					if err != nil {
						continue // it is not there
					}
					is, _, _ := unstructured.NestedString(u.Object, "status", "provisioning", "state")
					_, paused := u.GetAnnotations()[hostPaused]
					switch {
					case paused:
						continue
					case u.GetDeletionTimestamp() != nil:
						add(fmt.Sprintf("%s is deprovisioned on side %d", name, i))
					case is != state:
						add(fmt.Sprintf("%s is in the state %q on side %d", name, is, i))
					}
					atWork++
				}
				if atWork > 1 {
					add(name + " is at work on both sides")
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() []string {
		cancel()
		done.Wait()
		return seen
	}
}

// hostsPaused returns the hosts of the source that are paused.
func (fx *fixture) hostsPaused() (names []string) {
	fx.t.Helper()
	k := fx.kind(fx.at, object.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"})
	_, err := fx.source().Reader().List(fx.t.Context(), k, kube.ListOptions{Namespace: fx.namespace},
		func(raw []byte) error {
			u := &unstructured.Unstructured{}
			err := u.UnmarshalJSON(raw)
			if _, paused := u.GetAnnotations()[hostPaused]; paused {
				names = append(names, u.GetName())
			}
			return err
		})
	must(fx.t, err)
	return names
}

// TestAPIMoveOfHosts moves hosts of Metal3, and a pool of addresses: what is paused on the source
// for a whole move.
func TestAPIMoveOfHosts(t *testing.T) {
	servers.InstallMetal3(t, "InClusterIPPool.ipam.cluster.x-k8s.io")
	t.Run("GivesNoAddressTwice", testPoolOfThree)
	t.Run("TouchesNoMachine", testMoveTouchesNoMachine)
	t.Run("ReleasesNoneThatIsAtWorkOnTheSource", testHostAtWorkOnTheSource)
	t.Run("RolledBackLeavesWhatTheTargetUses", testHostAtWorkOnTheTarget)
	t.Run("RolledBackEarlyLeavesWhatTheTargetUses", testHostOfAnotherMove)
	t.Run("LeavesOutWhatCameIntoUse", testHostThatCameIntoUse)
	t.Run("UnpausesWhatIsReleasedMeanwhile", testHostThatIsReleased)
	t.Run("UnpausesThemWhenNothingIsLeftToMove", testHostsOfDeletedUnits)
	t.Run("UnpausesThemAfterACrashAsWell", testHostsOfDeletedUnitsAfterACrash)
}

// testMoveTouchesNoMachine: hosts are paused on the source before they are copied, the free one
// as well, and none is at work on both sides. A rollback gives the pauses back exactly. A whole
// move removes them from the source without their operator ever seeing one that is deleted, and
// they are at work on the target as they were.
func testMoveTouchesNoMachine(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts")
	fx.makeHosts()
	stop := fx.watchHosts()
	o := fx.order(doMove)
	o.Kill = &notHandedOver
	if _, err := fx.run(o); err != nil {
		t.Fatal(err)
	}
	if paused := fx.hostsPaused(); !slices.Contains(paused, "free") {
		t.Errorf("only %v are paused on the source", paused)
	}
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkBack(st))
	if paused := fx.hostsPaused(); len(paused) > 0 {
		t.Errorf("%v are still paused on the source", paused)
	}
	fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
	fx.report(stop())
	st, err = fx.state()
	must(t, err)
	fx.report(fx.checkMoved(st))
	for ref, u := range st.target {
		if _, paused := u.GetAnnotations()[hostPaused]; paused {
			t.Errorf("%s is still paused", ref)
		}
	}
}

// pauseHost writes what a pause of ours is to a free host, or ends it, as somebody does who knows
// Metal3 and not us: our mark stays.
func (fx *fixture) pauseHost(i int, to bool) {
	fx.t.Helper()
	fx.change(i, fx.freeHost(), func(u *unstructured.Unstructured) {
		if to {
			(*capi.Table)(nil).Pause(u.Object)
		} else {
			capi.Unannotate(u.Object, hostPaused)
		}
	})
}

func (fx *fixture) freeHost() object.Ref {
	return object.Ref{Group: "metal3.io", Kind: "BareMetalHost", Namespace: fx.namespace, Name: "free"}
}

// testHostAtWorkOnTheSource: somebody ends the pause of a free host there
// before its copy is released. It stays paused, also when a resume cannot ask the source. Once it
// is paused again there, a resume brings the move to its end.
func testHostAtWorkOnTheSource(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts-kept")
	fx.makeHosts()
	o := fx.order(doMove)
	o.Kill = &notHandedOver
	if _, err := fx.run(o); err != nil {
		t.Fatal(err)
	}
	fx.pauseHost(fx.at, false)
	stop := fx.watchHosts()
	e := fx.carryOut(fx.order(doResume), catalog.Failed, nil)
	if !strings.Contains(e.Message, "it is not paused any more") {
		t.Errorf("it ended with %q", e.Message)
	}
	copyPaused := func(when string) {
		if _, paused := fx.get(1-fx.at, fx.freeHost()).GetAnnotations()[hostPaused]; !paused {
			t.Error("its copy is released " + when)
		}
	}
	copyPaused("while it is at work on the source")
	e, err := fx.run(fx.goForward(fx.order(doResume)))
	must(t, err)
	if !strings.Contains(e.Message, "what workload clusters share waits for") {
		t.Errorf("without the source it ended as %s: %s", e.State, e.Message)
	}
	copyPaused("without asking the source")
	fx.pauseHost(fx.at, true)
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	fx.report(stop())
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkMoved(st))
}

// testHostAtWorkOnTheTarget: a move is rolled back while the copy of a free host is at work on
// the target, where something uses it. It stays there, and that of the source stays paused. What is
// not at work is given back.
func testHostAtWorkOnTheTarget(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts-used")
	fx.makeHosts()
	o := fx.order(doMove)
	o.Kill = &notHandedOver
	if _, err := fx.run(o); err != nil {
		t.Fatal(err)
	}
	fx.pauseHost(1-fx.at, false)
	stop := fx.watchHosts()
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	fx.report(stop())
	st, err := fx.state()
	must(t, err)
	if st.target[fx.freeHost()] == nil {
		t.Error("it is removed from the target")
	}
	if paused := fx.hostsPaused(); !slices.Equal(paused, []string{"free"}) {
		t.Errorf("%v are paused on the source", paused)
	}
}

// testHostOfAnotherMove: a move is rolled back that has copied nothing yet, while another move has
// released its copy of a free host on the target. That of the source stays paused.
func testHostOfAnotherMove(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts-other")
	fx.makeHosts()
	o := fx.order(doMove)
	o.Kill = &kill{Point: after, Step: "-/pause-shared"}
	if _, err := fx.run(o); err != nil {
		t.Fatal(err)
	}
	there := fx.get(fx.at, fx.freeHost())
	(*capi.Table)(nil).Unpause(there.Object)
	status := there.Object["status"]
	k := fx.kind(1-fx.at, fx.freeHost().GroupKind())
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(there.Object, "metadata", field)
	}
	capi.Annotate(there.Object, hostPaused, "") // until it has its status
	there, err := fx.target().Writer().Create(t.Context(), k, there)
	must(t, err)
	there.Object["status"] = status
	there, err = fx.target().Writer().UpdateStatus(t.Context(), k, there)
	must(t, err)
	capi.Unannotate(there.Object, hostPaused)
	_, err = fx.target().Writer().Update(t.Context(), k, there)
	must(t, err)
	stop := fx.watchHosts()
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	fx.report(stop())
	if paused := fx.hostsPaused(); !slices.Equal(paused, []string{"free"}) {
		t.Errorf("%v are paused on the source", paused)
	}
}

// testHostThatCameIntoUse: a host is free when the move is planned, and provisioned when the first
// batch begins. It is not paused in the middle of that, and it is not moved.
func testHostThatCameIntoUse(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts-new")
	fx.makeHosts()
	fx.carryOut(fx.order(doMove), catalog.Succeeded, func(_ context.Context,
		s catalog.StepRecord) error {
		if s.Step.Phase != "pause-shared" || s.State != catalog.StepBegun {
			return nil
		}
		u := fx.get(fx.at, fx.freeHost())
		err := unstructured.SetNestedField(u.Object, "provisioning", "status", "provisioning", "state")
		if err == nil {
			_, err = fx.source().Writer().UpdateStatus(t.Context(),
				fx.kind(fx.at, fx.freeHost().GroupKind()), u)
		}
		return err
	})
	if _, paused := fx.get(fx.at, fx.freeHost()).GetAnnotations()[hostPaused]; paused {
		t.Error("it is paused on the source")
	}
	st, err := fx.state()
	must(t, err)
	if st.target[fx.freeHost()] != nil {
		t.Error("it is on the target")
	}
}

// testHostThatIsReleased: the Machine of a host goes after its workload cluster was locked, so that
// the host is free by the time at which it is paused. Nothing moves it, and it does not stay paused
// on the source, where others look for a free one.
func testHostThatIsReleased(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts-released")
	fx.makeHosts()
	host := fx.freeHost()
	host.Name = usedHost
	o := fx.order(doMove).restrict(fx.namespace, classyUnits[0])
	e := fx.carryOut(o, catalog.Failed, fx.beginning(classyUnits[0], "pause", func() error {
		return fx.tryChange(fx.at, host, func(u *unstructured.Unstructured) {
			u.SetOwnerReferences(nil)
			unstructured.RemoveNestedField(u.Object, "spec", "consumerRef")
		})
	}))
	if !slices.ContainsFunc(e.Findings, func(f string) bool {
		return strings.Contains(f, usedHost+" does not belong to it any more")
	}) {
		t.Errorf("findings: %q", e.Findings)
	}
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	if paused := fx.hostsPaused(); slices.Contains(paused, usedHost) {
		t.Errorf("%v are paused on the source", paused)
	}
	for ref := range fx.live(fx.at) {
		if unitName(ref.Name) == classyUnits[0] && ref.Name != usedHost { // which names what it has, too
			t.Errorf("%s is left on the source", ref)
		}
	}
}

// testHostsOfDeletedUnits: somebody deletes all workload clusters of the source during a move,
// which has paused the free host for them.
func testHostsOfDeletedUnits(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts-left")
	fx.makeHosts()
	paused := 0
	fx.carryOut(fx.order(doMove), catalog.Succeeded, fx.whenOnce(allUnits[0], "pause",
		catalog.StepBegun, func() error {
			paused = len(fx.hostsPaused())
			fx.remove(fx.at, func(name string) bool { return unitName(name) != "" })
			return nil
		}))
	if left := fx.hostsPaused(); paused == 0 || len(left) > 0 {
		t.Errorf("%d hosts were paused, and %v still are", paused, left)
	}
}

// testHostsOfDeletedUnitsAfterACrash: the same, and the run dies right before that, once it has
// paused the host that a Machine uses. The capture of the resume does not show whose host it is.
func testHostsOfDeletedUnitsAfterACrash(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "hosts-crash")
	fx.makeHosts()
	o := fx.order(doMove)
	o.Kill = &kill{Point: inside, Step: "ns/" + classyUnits[0] + "/pause", Write: 2, Answered: true}
	_, err := fx.run(o)
	must(t, err)
	paused := fx.hostsPaused()
	fx.remove(fx.at, func(name string) bool { return unitName(name) != "" && name != usedHost })
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	if left := fx.hostsPaused(); !slices.Contains(paused, usedHost) || len(left) > 0 {
		t.Errorf("%v were paused, and %v still are", paused, left)
	}
}
