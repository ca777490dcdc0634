//go:build api

package restore_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

const (
	hostPaused = "baremetalhost.metal3.io/paused"
	hostStatus = "baremetalhost.metal3.io/status"
)

var hostGK = object.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"}

// hostSite is a management cluster as a test writes its hosts.
type hostSite struct {
	*kube.Mgmt
	kinds     []kube.Kind
	namespace string
}

func hostsOn(t *testing.T, i int, namespace string) *hostSite {
	t.Helper()
	s := &hostSite{Mgmt: servers.Connect(t, i), namespace: namespace}
	var err error
	if s.kinds, err = s.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *hostSite) host(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	k, _ := kube.FindKind(s.kinds, hostGK)
	return s.Reader().Get(ctx, k, s.namespace, name)
}

// setStatus writes the status of a host, as its controller or somebody else does.
func (s *hostSite) setStatus(ctx context.Context, name string, status any) error {
	k, _ := kube.FindKind(s.kinds, hostGK)
	u, err := s.host(ctx, name)
	if err != nil {
		return err
	}
	delete(u.Object, "status")
	if status != nil {
		u.Object["status"] = status
	}
	_, err = s.Writer().UpdateStatus(kube.WithFieldManager(ctx, "operator"), k, u)
	return err
}

// make creates an object with its status.
func (s *hostSite) make(t *testing.T, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	gvk := u.GroupVersionKind()
	k, ok := kube.FindKind(s.kinds, object.GroupKind{Group: gvk.Group, Kind: gvk.Kind})
	if !ok {
		t.Fatalf("%s is not served", gvk)
	}
	u.SetNamespace(s.namespace)
	status := u.Object["status"]
	u, err := s.Writer().Create(t.Context(), k, u)
	if err == nil && status != nil {
		u.Object["status"] = status
		_, err = s.Writer().UpdateStatus(t.Context(), k, u)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// firstOf returns an object of a kind in the namespace.
func (s *hostSite) firstOf(t *testing.T, kind string) (u *unstructured.Unstructured) {
	t.Helper()
	i := slices.IndexFunc(s.kinds, func(k kube.Kind) bool { return k.Kind == kind })
	if _, err := s.Reader().List(t.Context(), s.kinds[i], kube.ListOptions{Namespace: s.namespace,
		Limit: 1}, func(raw []byte) error {
		u = &unstructured.Unstructured{}
		return u.UnmarshalJSON(raw)
	}); err != nil || u == nil {
		t.Fatalf("no %s: %v", kind, err)
	}
	return u
}

// fillHosts makes a host that a Machine of the namespace uses, what belongs to it, and a free host.
func (s *hostSite) fillHosts(t *testing.T) {
	t.Helper()
	const head = `{"apiVersion":"metal3.io/v1alpha1","kind":`
	s.make(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bmc"},"data":{"username":"YQ=="}}`)
	machine := s.firstOf(t, "DevMachine")
	named := `"apiVersion":"` + machine.GetAPIVersion() + `","kind":"DevMachine","name":"` +
		machine.GetName() + `"`
	s.make(t, head+`"BareMetalHost","metadata":{"name":"used","ownerReferences":[{`+named+
		`,"uid":"`+string(machine.GetUID())+`"}],"finalizers":["baremetalhost.metal3.io"]},
		"spec":{"online":true,"bmc":{"address":"ipmi://192.0.2.1","credentialsName":"bmc"},
			"consumerRef":{`+named+`,"namespace":"`+s.namespace+`"},
			"image":{"url":"http://images/v1.raw","checksum":"c"}},
		"status":{"errorCount":0,"errorMessage":"","operationalStatus":"OK","poweredOn":true,
			"lastUpdated":"2026-01-02T03:04:05Z","hardware":{"ramMebibytes":1},
			"goodCredentials":{"credentials":{"name":"bmc"},"credentialsVersion":"1"},
			"provisioning":{"state":"provisioned","ID":"7","bootMode":"UEFI",
				"image":{"url":"http://images/v1.raw","checksum":"c"}}}}`)
	s.make(t, head+`"BareMetalHost","metadata":{"name":"free"},"spec":{"online":false},
		"status":{"errorCount":0,"errorMessage":"","operationalStatus":"OK","poweredOn":false,
			"lastUpdated":"2026-01-02T03:04:05Z","provisioning":{"state":"available","ID":"8"}}}`)
	s.make(t, head+`"HardwareData","metadata":{"name":"used"},"spec":{"hardware":{"ramMebibytes":1}}}`)
	s.make(t, head+`"FirmwareSchema","metadata":{"name":"schema"},"spec":{"schema":{}}}`)
	s.make(t, head+`"HostFirmwareSettings","metadata":{"name":"used"},"spec":{"settings":{"a":"b"}},
		"status":{"settings":{"a":"b"},"schema":{"name":"schema","namespace":"`+s.namespace+`"}}}`)
	s.make(t, head+`"HostFirmwareComponents","metadata":{"name":"used"},"spec":{"updates":[]},
		"status":{"updates":[],"components":[]}}`)
	s.make(t, head+`"HostUpdatePolicy","metadata":{"name":"used"},"spec":{"firmwareSettings":"onReboot"}}`)
	s.make(t, head+`"DataImage","metadata":{"name":"used"},"spec":{"url":"http://images/data.iso"}}`)
	s.make(t, head+`"PreprovisioningImage","metadata":{"name":"free"},"spec":{"architecture":"x86_64"},
		"status":{"architecture":"x86_64","imageUrl":"http://images/a.iso"}}`)
}

// operator stands in for the Bare Metal Operator: it acts on a host that has no pause. A host that
// it finds in another state than on the source is lost.
type operator struct {
	mu     sync.Mutex
	lost   []string
	atWork map[string]bool
}

// watch looks at the hosts until ctx ends. With wipe, somebody takes the status from a host as soon
// as it has one.
func (o *operator) watch(ctx context.Context, s *hostSite, wipe string) {
	for ctx.Err() == nil {
		for name, state := range map[string]string{"used": "provisioned", "free": "available"} {
			u, err := s.host(ctx, name)
			if err != nil {
				continue
			}
			is, _, _ := unstructured.NestedString(u.Object, "status", "provisioning", "state")
			if _, paused := u.GetAnnotations()[hostPaused]; !paused {
				o.mu.Lock()
				o.atWork[name] = true
				if is != state {
					o.lost = append(o.lost, name+" in the state "+is)
				}
				o.mu.Unlock()
			} else if name == wipe && is != "" {
				_ = s.setStatus(ctx, name, nil)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// look runs fn while the operator watches.
func look(ctx context.Context, s *hostSite, wipe string, fn func()) *operator {
	o := &operator{atWork: map[string]bool{}}
	ctx, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { o.watch(ctx, s, wipe) })
	fn()
	stop()
	done.Wait()
	return o
}

// TestAPIAHostIsNeverReleasedWithoutItsStatus: somebody takes the status from a host as often as it
// gets one, and the operator accepts every difference in it. The workload cluster and the host stay
// paused, also in a resume. Once the status is back, a resume releases them.
func TestAPIAHostIsNeverReleasedWithoutItsStatus(t *testing.T) {
	servers.InstallMetal3(t)
	servers.Fleet(t, 0, "--namespace-prefix", "hosts-", "--workloads", "1", "--machines", "1", "--fast")
	const namespace = "hosts-team-0000"
	source, target := hostsOn(t, 0, namespace), hostsOn(t, 1, namespace)
	source.fillHosts(t)
	s := take(t, "hosts-")
	servers.Acknowledge(t, 1)
	accept, err := object.ParseAcceptedDifference("BareMetalHost.metal3.io:status")
	if err != nil {
		t.Fatal(err)
	}
	spec := everything
	spec.Accept = []object.AcceptedDifference{accept}
	for range 2 {
		seen := look(t.Context(), target, "used", func() {
			err = s.carryOut(t.Context(), spec, realWriter)
		})
		if incomplete, ok := errors.AsType[*restore.IncompleteError](err); !ok ||
			!strings.Contains(incomplete.Error(), "must not be released") {
			t.Fatalf("it ended with %v", err)
		}
		if len(seen.lost) > 0 || seen.atWork["used"] {
			t.Errorf("lost: %v, at work: %v", seen.lost, seen.atWork)
		}
		for unit, is := range released(t, "hosts-") {
			if is {
				t.Errorf("%s is released", unit)
			}
		}
	}
	u, err := target.host(t.Context(), "used")
	if err != nil || !strings.Contains(u.GetAnnotations()[hostStatus], `"state":"provisioned"`) ||
		strings.Contains(u.GetAnnotations()[hostStatus], "ramMebibytes") {
		t.Errorf("the annotations of its creation: %v, %v", u.GetAnnotations(), err)
	}

	was, err := source.host(t.Context(), "used")
	if err != nil {
		t.Fatal(err)
	}
	if err := target.setStatus(t.Context(), "used", was.Object["status"]); err != nil {
		t.Fatal(err)
	}
	seen := look(t.Context(), target, "", func() { err = s.carryOut(t.Context(), spec, realWriter) })
	if err != nil {
		t.Fatalf("resumed: %v", err)
	}
	if len(seen.lost) > 0 {
		t.Errorf("resumed: lost %v", seen.lost)
	}
	checkRestored(t, s)
	for _, name := range []string{"used", "free"} {
		u, err := target.host(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []string{hostPaused, hostStatus} {
			if _, left := u.GetAnnotations()[a]; left {
				t.Errorf("%s still has %s", name, a)
			}
		}
	}
}
