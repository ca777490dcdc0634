package live

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/mgmtd/mgmtd/e2e/lab"
)

// Annotations of a host.
const (
	hostPaused = "baremetalhost.metal3.io/paused"
	hostStatus = "baremetalhost.metal3.io/status"
)

// done are the reasons of the operator's Events by which it does something to a machine besides
// switching it on or off.
var done = []string{"Registered", "InspectionComplete", "InspectionSkipped", "ProvisioningComplete",
	"DeprovisionStarted", "DeprovisionComplete", "PreparationError", "ServicingError",
	"InspectionError", "ProvisioningError"}

// hostWatch sees what becomes of hosts on all management clusters, by watches. Its problems are
// what must not happen once begin was called.
type hostWatch struct {
	problems
	mu     sync.Mutex
	begun  bool
	counts map[types.UID]int64 // of Events that were seen
	// atWork are the management clusters that have a host which is not paused, by host.
	atWork map[string]map[string]bool
}

func newHostWatch() *hostWatch {
	return &hostWatch{counts: map[types.UID]int64{}, atWork: map[string]map[string]bool{}}
}

// followHosts begins to watch management clusters.
func (f *fixture) followHosts(t *testing.T, seen *hostWatch, mgmts ...*lab.Mgmt) {
	t.Helper()
	for _, m := range mgmts {
		f.follow(t, m, "v1", "Event", seen.noteEvent)
		f.follow(t, m, hostsAPI, "BareMetalHost", seen.noteHost)
	}
}

// begin is called when all hosts are in a state that lasts.
func (w *hostWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
}

// forget is called when a management cluster is gone.
func (w *hostWatch) forget(m *lab.Mgmt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, on := range w.atWork {
		delete(on, m.Name())
	}
}

func (w *hostWatch) noteEvent(m *lab.Mgmt, kind watch.EventType, e *unstructured.Unstructured) {
	of, _, _ := unstructured.NestedString(e.Object, "involvedObject", "kind")
	reason, _, _ := unstructured.NestedString(e.Object, "reason")
	if of != "BareMetalHost" || kind == watch.Deleted || !slices.Contains(done, reason) {
		return
	}
	name, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name")
	count, _, _ := unstructured.NestedInt64(e.Object, "count")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun && w.counts[e.GetUID()] != count { // a new watch begins with the Events of before
		w.add("%s: host %s: %s", m.Name(), name, reason)
	}
	w.counts[e.GetUID()] = count
}

func (w *hostWatch) noteHost(m *lab.Mgmt, kind watch.EventType, host *unstructured.Unstructured) {
	name, state := host.GetName(), stateOf(host)
	_, paused := host.GetAnnotations()[hostPaused]
	w.mu.Lock()
	defer w.mu.Unlock()
	on := w.atWork[name]
	if on == nil {
		on = map[string]bool{}
		w.atWork[name] = on
	}
	if kind == watch.Deleted || paused {
		delete(on, m.Name())
	} else {
		on[m.Name()] = true
	}
	if !w.begun || kind == watch.Deleted {
		return
	}
	if host.GetDeletionTimestamp() != nil {
		w.add("%s: host %s is being deleted", m.Name(), name)
	}
	if state == "" && host.GetAnnotations()[hostStatus] == "" {
		w.add("%s: host %s has no status, and none as an annotation", m.Name(), name)
	}
	if !paused && state != lastingState(name) {
		w.add("%s: host %s is at work in the state %q", m.Name(), name, state)
	}
	if len(on) > 1 {
		w.add("host %s is at work on %v", name, slices.Sorted(maps.Keys(on)))
	}
}

// lastingState is the state in which a host is from begin on.
func lastingState(host string) string {
	if host == freeHost {
		return "available"
	}
	return "provisioned"
}

func stateOf(host *unstructured.Unstructured) string {
	state, _, _ := unstructured.NestedString(host.Object, "status", "provisioning", "state")
	return state
}
