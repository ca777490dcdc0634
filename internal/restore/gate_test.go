package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	hostRef     = "BareMetalHost.metal3.io/n/h"
	freeHostRef = "BareMetalHost.metal3.io/n/free"
	hostPaused  = "baremetalhost.metal3.io/paused"
	hostImage   = `"image":{"url":"http://images/v1.raw","checksum":"c"}`
	freeHost    = `{"kind":"BareMetalHost","metadata":{"namespace":"n","name":"free"},"spec":{},` +
		`"status":{"lastUpdated":"2026-01-02T03:04:05Z","provisioning":{"ID":"8","state":"available"}}}`
)

// sourceHost is a host that the workload cluster n/w uses, in a state, with annotations.
func sourceHost(state, annotations string) string {
	return fmt.Sprintf(`{"kind":"BareMetalHost","metadata":{"namespace":"n","name":"h","annotations":
		{%s},"ownerReferences":[{"kind":"DevCluster","name":"w"}]},"spec":{%s},"status":{
		"lastUpdated":"2026-01-02T03:04:05Z","provisioning":{"ID":"7","state":%q,%[2]s}}}`,
		annotations, hostImage, state)
}

// watched writes to a target in memory, and looks at the hosts after each write: the controller
// of the hosts must never find one that is at work and not as it was on the source. It dies at a
// write.
type watched struct {
	*memory
	t      *testing.T
	writes int // that are done before it dies; negative is all
	// before, when set, is called before each update of an object.
	before func(u *unstructured.Unstructured)

	mu   sync.Mutex
	done int
}

func (w *watched) write(send func() (*unstructured.Unstructured, error)) (
	*unstructured.Unstructured, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writes >= 0 && w.done >= w.writes {
		return nil, errDied
	}
	w.done++
	u, err := send()
	w.look()
	return u, err
}

func (w *watched) look() {
	w.t.Helper()
	for ref, state := range map[string]string{hostRef: "provisioned", freeHostRef: "available"} {
		u := w.get(w.t, ref)
		if u == nil {
			continue
		}
		is, _, _ := unstructured.NestedString(u.Object, "status", "provisioning", "state")
		if _, paused := u.GetAnnotations()[hostPaused]; !paused && is != state {
			w.t.Errorf("after %d writes %s is at work in the state %q", w.done, ref, is)
		}
	}
}

func (w *watched) Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if k.Kind == "BareMetalHost" && !strings.Contains(
		obj.GetAnnotations()["baremetalhost.metal3.io/status"], `"state":`) {
		w.t.Errorf("%s is created without its status: %v", obj.GetName(), obj.GetAnnotations())
	}
	return w.write(func() (*unstructured.Unstructured, error) { return w.memory.Create(ctx, k, obj) })
}

func (w *watched) Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if w.before != nil {
		w.before(obj)
	}
	return w.write(func() (*unstructured.Unstructured, error) { return w.memory.Update(ctx, k, obj) })
}

func (w *watched) UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return w.write(func() (*unstructured.Unstructured, error) {
		return w.memory.UpdateStatus(ctx, k, obj)
	})
}

// hostTrial is a trial of a workload cluster with a host.
func hostTrial(t *testing.T, more ...string) (*trial, *watched) {
	t.Helper()
	target := newMemory(t, "target")
	x := newTrial(t, newMemory(t, "source", append([]string{needsNamespace, needsCluster, needsInfra},
		more...)...), target)
	w := &watched{memory: target, t: t, writes: -1}
	x.writer = w
	return x, w
}

// acceptStatus makes verify let every status of a host pass.
func (x *trial) acceptStatus(t *testing.T) {
	t.Helper()
	accept, err := object.ParseAcceptedDifference("BareMetalHost.metal3.io:status")
	if err != nil {
		t.Fatal(err)
	}
	x.spec.Accept = []object.AcceptedDifference{accept}
}

// wipe takes the status from a host, as somebody else.
func wipe(u *unstructured.Unstructured) { delete(u.Object, "status") }

func isHostPaused(u *unstructured.Unstructured) bool {
	_, paused := u.GetAnnotations()[hostPaused]
	return paused
}

// TestAHostIsRestoredAsItWasAndReleased: also one that a user paused, and one of a Cluster that
// its provider paused, which gives it back.
func TestAHostIsRestoredAsItWasAndReleased(t *testing.T) {
	for name, tt := range map[string]struct{ annotations, after string }{
		"at work":          {``, ``},
		"paused by a user": {`"baremetalhost.metal3.io/paused":"by me"`, "by me"},
		"paused by its provider": {`"baremetalhost.metal3.io/paused":"metal3.io/capm3"`,
			"metal3.io/capm3"},
	} {
		x, _ := hostTrial(t, sourceHost("provisioned", tt.annotations), freeHost)
		if failures, err := x.run(t); err != nil || x.released(t) != "n/w" {
			t.Fatalf("%s: released %q, failures %q: %v", name, x.released(t), failures, err)
		}
		u := x.target.get(t, hostRef)
		if capi.PausedByUs(u.Object) || u.GetAnnotations()[hostPaused] != tt.after {
			t.Errorf("%s: %v", name, u.GetAnnotations())
		}
		if free := x.target.get(t, freeHostRef); isHostPaused(free) {
			t.Errorf("%s: the free host: %v", name, free.GetAnnotations())
		}
	}
}

// TestAHostWithoutItsStatusIsNeverReleased: its status is gone at each moment at which a run may
// have died, and right before the write that releases it.
func TestAHostWithoutItsStatusIsNeverReleased(t *testing.T) {
	for writes := 0; ; writes++ {
		x, w := hostTrial(t, sourceHost("provisioned", ``))
		x.acceptStatus(t)
		w.writes = writes
		if _, err := x.run(t); err == nil {
			if writes < 6 {
				t.Fatalf("a run has only %d writes", writes)
			}
			return
		}
		released := false
		if u := x.target.get(t, hostRef); u != nil {
			released = !isHostPaused(u)
			x.target.set(t, hostRef, wipe)
		}
		x.load(t)
		w.writes, w.t = -1, t
		if released {
			continue // by the write before: it was what it had to be
		}
		_, err := x.run(t)
		u := x.target.get(t, hostRef)
		state, _, _ := unstructured.NestedString(u.Object, "status", "provisioning", "state")
		switch {
		case state == "provisioned" && err == nil: // the resume has written it
		case isHostPaused(u) && x.released(t) == "" && err != nil:
		default:
			t.Fatalf("died after %d writes: released %q, the host %v: %v", writes, x.released(t),
				u.Object, err)
		}
	}
}

// TestAHostIsExaminedInTheWriteThatReleasesIt: somebody changes it between the last look and that
// write.
func TestAHostIsExaminedInTheWriteThatReleasesIt(t *testing.T) {
	x, w := hostTrial(t, sourceHost("provisioned", ``), freeHost)
	w.before = func(u *unstructured.Unstructured) {
		if u.GetKind() == "BareMetalHost" && !isHostPaused(u) {
			w.before = nil
			w.set(t, refOf(u).String(), wipe)
		}
	}
	failures, err := x.run(t)
	notReady, ok := errors.AsType[*notReadyError](err)
	if !ok || !strings.Contains(notReady.Hint(), "by hand") || x.released(t) != "" {
		t.Fatalf("released %q, failures %q: %v", x.released(t), failures, err)
	}
	// Once its status is back, it is released.
	x.target.set(t, hostRef, func(u *unstructured.Unstructured) {
		u.Object["status"] = x.source.get(t, hostRef).Object["status"]
	})
	x.load(t)
	if failures, err := x.run(t); err != nil || x.released(t) != "n/w" {
		t.Errorf("resumed: released %q, failures %q: %v", x.released(t), failures, err)
	}
	if isHostPaused(x.target.get(t, hostRef)) || isHostPaused(x.target.get(t, freeHostRef)) {
		t.Error("resumed: a host is still paused")
	}
}

// TestAUnitIsNotHandedOverWithoutItsHost: what verify lets pass stops it before the hook, and its
// release is not begun, so that the operation can be undone.
func TestAUnitIsNotHandedOverWithoutItsHost(t *testing.T) {
	x, w := hostTrial(t, sourceHost("provisioned", ``))
	x.acceptStatus(t)
	x.target.statusWritten = func(u *unstructured.Unstructured) {
		if u.GetKind() == "BareMetalHost" {
			u.Object["status"] = map[string]any{"lastUpdated": "2026-01-02T03:04:05Z",
				"provisioning": map[string]any{"ID": "", "state": "registering"}}
		}
	}
	called := false
	x.hooks.BeforeRelease = func(context.Context, Unit) error {
		called = true
		return nil
	}
	failures, err := x.run(t)
	_, ok := errors.AsType[*notReadyError](err)
	state, stateErr := x.catalog.Journal(x.id, catalog.JournalOptions{}).State(t.Context(),
		releaseStep("n/w"))
	if !ok || called || state != "" || stateErr != nil || w.get(t, hostRef) == nil {
		t.Errorf("hook called %t, release %q (%v), failures %q: %v", called, state, stateErr, failures,
			err)
	}
}

// TestAFreeHostThatIsNotReadyStaysPaused, alone: the workload clusters and the other free hosts
// are released, and the operation is not at its end.
func TestAFreeHostThatIsNotReadyStaysPaused(t *testing.T) {
	second := strings.Replace(freeHost, `"name":"free"`, `"name":"second"`, 1)
	x, _ := hostTrial(t, freeHost, second)
	x.hooks.BeforeRelease = func(context.Context, Unit) error {
		x.target.set(t, freeHostRef, wipe)
		return nil
	}
	failures, err := x.run(t)
	if err == nil || !slices.ContainsFunc(failures, func(f string) bool {
		return strings.Contains(f, "it has no status")
	}) {
		t.Errorf("failures %q: %v", failures, err)
	}
	if !isHostPaused(x.target.get(t, freeHostRef)) ||
		isHostPaused(x.target.get(t, "BareMetalHost.metal3.io/n/second")) || x.released(t) != "n/w" {
		t.Errorf("released %q", x.released(t))
	}
}

// TestAHostInWorkBlocksItsUnit, and one that nobody uses is left out.
func TestAHostInWorkBlocksItsUnit(t *testing.T) {
	for state, want := range map[string]string{"provisioning": "error", "deprovisioning": "error",
		"preparing": "error", "inspecting": "warning", "provisioned": ""} {
		x, _ := hostTrial(t, sourceHost(state, ``), strings.Replace(freeHost, "available", state, 1))
		plan := x.makePlan(t)
		got := ""
		for _, f := range plan.Findings {
			if f.Code == object.CodeNotSettled && f.Ref.String() == hostRef {
				got = f.Severity.String()
			}
		}
		if got != want || plan.Units[0].Blocked != (want == "error") {
			t.Errorf("%s: %q, blocked %t, want %q", state, got, plan.Units[0].Blocked, want)
		}
		for _, o := range plan.Shared.Objects {
			if o.Ref.String() == freeHostRef && (o.Action == Skip) != (want == "error") &&
				state != "provisioned" {
				t.Errorf("%s: the free host: %v", state, o.Action)
			}
		}
	}
}

// TestAFreeHostThatALostMovePausedIsMovedByForce: the operation that has paused it is lost, and the
// operator says so. Without that it is left out, and one that is not paused is left out of a batch.
func TestAFreeHostThatALostMovePausedIsMovedByForce(t *testing.T) {
	const mark = `"mgmtd.dev/was-paused":"absent","baremetalhost.metal3.io/paused":"mgmtd.dev"`
	with := func(annotations string) string {
		return strings.Replace(freeHost, `"name":"free"`, `"name":"free","annotations":{`+annotations+`}`, 1)
	}
	paused := with(mark)
	for _, tt := range []struct {
		name, host, force string
		batch             bool
		code              object.Code
		severity          object.Severity
		skipped           bool
	}{
		{name: "free", host: freeHost},
		{name: "paused", host: paused, code: object.CodeLocked, severity: object.Warning, skipped: true},
		{name: "paused, by force", host: paused, force: "locked", code: object.CodeLocked,
			severity: object.Warning},
		{name: "paused, in a batch", host: paused, batch: true},
		{name: "not paused, in a batch", host: freeHost, batch: true, code: object.CodeNotPaused,
			severity: object.Warning, skipped: true},
		{name: "unpaused by hand, in a batch", host: with(`"mgmtd.dev/was-paused":"absent"`), batch: true,
			code: object.CodeNotPaused, severity: object.Warning, skipped: true},
	} {
		x, _ := hostTrial(t, tt.host)
		x.spec.SourceAtWork = true
		if tt.batch {
			x.spec.Only = []string{"n/w"}
		}
		if tt.force != "" {
			x.spec.Force = object.Forced{object.Code(tt.force): ""}
		}
		plan := x.makePlan(t)
		var code object.Code
		for _, f := range plan.Findings {
			if f.Ref.String() == freeHostRef && (f.Code == object.CodeLocked ||
				f.Code == object.CodeNotPaused) {
				if code = f.Code; f.Severity != tt.severity {
					t.Errorf("%s: %s", tt.name, f.Severity)
				}
			}
		}
		skipped := false
		for _, o := range plan.Shared.Objects {
			skipped = skipped || o.Ref.String() == freeHostRef && o.Action == Skip
		}
		if code != tt.code || skipped != tt.skipped {
			t.Errorf("%s: %q, left out %t, want %q, %t", tt.name, code, skipped, tt.code, tt.skipped)
		}
	}
}
