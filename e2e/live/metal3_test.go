package live

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

const (
	hostsNS  = "hosts"
	hostsAPI = "metal3.io/v1alpha1"
	freeHost = "free"
)

// TestLongMetal3Hosts has the Baremetal Operator provision a host for each machine of a workload
// cluster, and inspect a free one. Its management cluster is restarted, and moved away from; the
// one that has the hosts then is lost, and a third one gets them by a restore. The operator works
// on all of them. It must never provision, deprovision or inspect a host again, nor find one
// without its status. A host that somebody takes the status from is not released, and neither is
// its workload cluster, until the status is back.
func TestLongMetal3Hosts(t *testing.T) {
	f := startWith(t, []string{lab.BareMetal}, fleet.Shape{Name: "web", Namespace: hostsNS,
		ControlPlanes: 1, Pools: []int{1}})
	o := &operator{fixture: f, t: t, state: t.TempDir()}
	seen := newHostWatch()
	f.followHosts(t, seen, f.source, f.target)
	used := f.createHosts(t, f.source)
	f.awaitHosts(t, f.source, used)
	was := f.hostHistory(t, f.source)
	seen.begin()

	f.restart(t, f.source)
	f.awaitHosts(t, f.source, used)
	assertEqual(t, "what was done to hosts, after a restart", f.hostHistory(t, f.source), was)
	before, err := observe.StableInventory(t.Context(), f.source.Kubeconfig(), hostsNS)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.snapshot(t.Context()); err != nil { // it makes the store
		t.Fatal(err)
	}

	o.moveStandalone(f.source, f.target, hostsNS)
	o.assertMoved(t, f.source, f.target, before, hostsNS)
	f.awaitHosts(t, f.target, used)
	assertEqual(t, "what was done to hosts, after a move", f.hostHistory(t, f.target), was)
	if left := f.hosts(t, f.source); len(left) > 0 {
		t.Errorf("%d hosts are left on the source", len(left))
	}
	seen.none(t, "hosts, after a move")
	if err := f.source.KillAll(); err != nil {
		t.Fatal(err)
	}

	f.addThird(t, lab.BareMetal)
	f.followHosts(t, seen, f.target)
	status := f.hosts(t, f.source)[1].Object["status"] // lists are sorted by name
	if err := f.captureAndKill(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen.forget(f.source)
	o.restoreWithout(t, "host-0", status)
	o.assertRestored(t, f.before.In(hostsNS), nil, hostsNS)
	f.awaitHosts(t, f.target, used)
	assertEqual(t, "what was done to hosts, after a restore", f.hostHistory(t, f.target), was)
	seen.none(t, "hosts, after a restore")
}

// restart ends a management cluster with kill -9 and starts it again.
func (f *fixture) restart(t *testing.T, m *lab.Mgmt) {
	t.Helper()
	if err := m.KillAll(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := m.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// restoreWithout restores everything while somebody takes the status from a host as often as it
// gets one, and every difference in it is accepted. The host and its workload cluster have to
// stay paused. Once it has status, that of the source, a resume releases them.
func (o *operator) restoreWithout(t *testing.T, host string, status any) {
	t.Helper()
	var wiping atomic.Bool
	wiping.Store(true)
	o.follow(t, o.target, hostsAPI, "BareMetalHost", func(m *lab.Mgmt, _ watch.EventType,
		u *unstructured.Unstructured) {
		if u.GetName() == host && wiping.Load() {
			for range 20 { // another write may come between
				if o.setHostStatus(t.Context(), m, host, nil) == nil {
					return
				}
			}
		}
	})
	signing := []string{"--signing-key", o.keys("signing.key")}
	o.restore(codeLeft, append(signing, "--source", o.source.Name(), "--source-is-gone", "--force",
		"source-seen-recently", "--accept-difference", "BareMetalHost.metal3.io:status")...)
	for _, u := range o.inventory(hostsNS).Of("cluster.x-k8s.io", "Cluster") {
		if !observe.Paused(u) {
			t.Errorf("%s is released", u.GetName())
		}
	}
	for _, u := range o.hosts(t, o.target) {
		_, paused := u.GetAnnotations()[hostPaused]
		if u.GetName() == host && (!paused || u.Object["status"] != nil) {
			t.Errorf("the host without a status: %v", u.Object)
		}
	}

	wiping.Store(false)
	if err := o.setHostStatus(t.Context(), o.target, host, status); err != nil {
		t.Fatal(err)
	}
	o.run(codeDone, append(append([]string{"operation", "resume", "latest"}, o.flags()...),
		signing...)...)
}

// hosts returns the hosts of a management cluster.
func (f *fixture) hosts(t *testing.T, m *lab.Mgmt) []unstructured.Unstructured {
	t.Helper()
	hosts, err := f.list(t.Context(), m, hostsAPI, "BareMetalHost", "")
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}

// setHostStatus replaces the status of a host; nil takes it away. A host that has none is left
// alone.
func (f *fixture) setHostStatus(ctx context.Context, m *lab.Mgmt, name string, status any) error {
	host := object(hostsAPI, "BareMetalHost", hostsNS, name)
	if err := f.clients[m].Get(ctx, keyOf(host), host); err != nil {
		return err
	}
	if status == nil && host.Object["status"] == nil {
		return nil
	}
	if delete(host.Object, "status"); status != nil {
		host.Object["status"] = status
	}
	return f.clients[m].Status().Update(ctx, host)
}

// createHosts creates a host with an image for each machine of the namespace, which owns it, and a
// free one, with their Secrets. It returns how many are used.
func (f *fixture) createHosts(t *testing.T, m *lab.Mgmt) (used int) {
	t.Helper()
	machines, err := f.list(t.Context(), m, "infrastructure.cluster.x-k8s.io/v1beta2", "DevMachine",
		hostsNS)
	if err != nil || len(machines) != 2 {
		t.Fatalf("%d machines: %v", len(machines), err)
	}
	add := func(i int, name string, change func(host *unstructured.Unstructured,
		spec map[string]any)) {
		secret := object("v1", "Secret", hostsNS, name+"-bmc")
		secret.Object["stringData"] = map[string]any{"username": "admin",
			"password": "password-of-" + name}
		host := object(hostsAPI, "BareMetalHost", hostsNS, name)
		spec := map[string]any{
			"online": true, "bootMACAddress": fmt.Sprintf("00:60:2f:00:00:%02x", i+1),
			"bmc": map[string]any{"address": fmt.Sprintf("ipmi://127.0.0.1:%d", 6230+i),
				"credentialsName": secret.GetName()}}
		change(host, spec)
		host.Object["spec"] = spec
		f.create(t, m, secret, host)
	}
	for i, machine := range machines {
		add(i, fmt.Sprintf("host-%d", i), func(host *unstructured.Unstructured, spec map[string]any) {
			named := map[string]any{"apiVersion": machine.GetAPIVersion(), "kind": machine.GetKind(),
				"name": machine.GetName()}
			owner := map[string]any{"uid": string(machine.GetUID())}
			consumer := map[string]any{"namespace": hostsNS}
			for key, value := range named {
				owner[key], consumer[key] = value, value
			}
			host.Object["metadata"].(map[string]any)["ownerReferences"] = []any{owner}
			spec["consumerRef"] = consumer
			spec["image"] = map[string]any{"url": "http://127.0.0.1/node.qcow2",
				"checksum": "http://127.0.0.1/node.qcow2.sha256sum", "checksumType": "sha256"}
		})
	}
	add(len(machines), freeHost, func(*unstructured.Unstructured, map[string]any) {})
	return len(machines)
}

var errPaused = errors.New("it is paused")

// awaitHosts waits until the operator reports the used hosts as provisioned, the free one as
// available, and all powered on and without error.
func (f *fixture) awaitHosts(t *testing.T, m *lab.Mgmt, used int) {
	t.Helper()
	await(t, "the hosts of "+m.Name(), func(ctx context.Context) error {
		hosts, err := f.list(ctx, m, hostsAPI, "BareMetalHost", hostsNS)
		for _, host := range hosts {
			state := stateOf(&host)
			on, _, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
			status, _, _ := unstructured.NestedString(host.Object, "status", "operationalStatus")
			if state != lastingState(host.GetName()) || !on || status != "OK" {
				return fmt.Errorf("%s is %s (%s), powered on %t: %w", host.GetName(), state, status, on,
					errNotYet)
			}
			if len(host.GetAnnotations()) > 0 {
				return fmt.Errorf("%s has annotations: %v: %w", host.GetName(), host.GetAnnotations(),
					errPaused)
			}
		}
		if err == nil && len(hosts) != used+1 {
			err = fmt.Errorf("%d of %d: %w", len(hosts), used+1, errNotYet)
		}
		return err
	})
}

// hostHistory says of each host when the operator last began to inspect, provision and deprovision
// it, and which image it has. What was done again has another time.
func (f *fixture) hostHistory(t *testing.T, m *lab.Mgmt) []string {
	t.Helper()
	var history []string
	for _, host := range f.hosts(t, m) {
		text := func(path ...string) string {
			value, _, _ := unstructured.NestedString(host.Object, append([]string{"status"}, path...)...)
			return value
		}
		image, begun := text("provisioning", "image", "url"), ""
		for _, what := range []string{"inspect", "provision", "deprovision"} {
			begun += fmt.Sprintf(" %s %s", what, text("operationHistory", what, "start"))
		}
		if (image == "") != (host.GetName() == freeHost) {
			t.Errorf("host %s has the image %q", host.GetName(), image)
		}
		history = append(history, host.GetName()+" "+image+begun)
	}
	return history
}
