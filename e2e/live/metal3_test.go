package live

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/e2e/lab"
)

const (
	hostsNS  = "hosts"
	hostsAPI = "metal3.io/v1alpha1"
)

// TestLongMetal3Hosts has the Baremetal Operator provision hosts. After a restart of the management
// cluster it must not provision them again: what a test of a restore or a move asserts of them is
// then worth something.
func TestLongMetal3Hosts(t *testing.T) {
	f := startBare(t, lab.BareMetal)
	f.create(t, f.source, object("v1", "Namespace", "", hostsNS))
	f.createHosts(t, f.source, hostsNS, 3)
	before := f.provisioned(t, f.source, hostsNS)
	if err := f.source.KillAll(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := f.source.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	f.awaitHosts(t, f.source, hostsNS, 3)
	after := f.provisioned(t, f.source, hostsNS)
	for name, was := range before {
		if after[name] != was {
			t.Errorf("host %s: provisioned %s before the restart, %s after it", name, was, after[name])
		}
	}
}

// createHosts creates BareMetalHosts with an image and their Secrets, and waits until the operator
// has provisioned them.
func (f *fixture) createHosts(t *testing.T, m *lab.Mgmt, namespace string, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("host-%d", i)
		secret := object("v1", "Secret", namespace, name+"-bmc")
		secret.Object["stringData"] = map[string]any{"username": "admin",
			"password": "password-of-" + name}
		host := object(hostsAPI, "BareMetalHost", namespace, name)
		host.Object["spec"] = map[string]any{
			"online": true, "bootMACAddress": fmt.Sprintf("00:60:2f:00:00:%02x", i+1),
			"bmc": map[string]any{"address": fmt.Sprintf("ipmi://127.0.0.1:%d", 6230+i),
				"credentialsName": secret.GetName()},
			"image": map[string]any{"url": "http://127.0.0.1/node.qcow2",
				"checksum": "http://127.0.0.1/node.qcow2.sha256sum", "checksumType": "sha256"},
		}
		f.create(t, m, secret, host)
	}
	f.awaitHosts(t, m, namespace, n)
}

// awaitHosts waits until the operator reports hosts as provisioned, powered on and without error.
func (f *fixture) awaitHosts(t *testing.T, m *lab.Mgmt, namespace string, n int) {
	t.Helper()
	await(t, "the hosts of "+m.Name(), func(ctx context.Context) error {
		hosts, err := f.list(ctx, m, hostsAPI, "BareMetalHost", namespace)
		for _, host := range hosts {
			state, _, _ := unstructured.NestedString(host.Object, "status", "provisioning", "state")
			on, _, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
			status, _, _ := unstructured.NestedString(host.Object, "status", "operationalStatus")
			if state != "provisioned" || !on || status != "OK" {
				return fmt.Errorf("%s is %s (%s), powered on %t: %w", host.GetName(), state, status, on,
					errNotYet)
			}
		}
		if err == nil && len(hosts) != n {
			err = fmt.Errorf("%d of %d: %w", len(hosts), n, errNotYet)
		}
		return err
	})
}

// provisioned says of each host when the operator began to write which image to it. A host that was
// provisioned again has another time.
func (f *fixture) provisioned(t *testing.T, m *lab.Mgmt, namespace string) map[string]string {
	t.Helper()
	hosts, err := f.list(t.Context(), m, hostsAPI, "BareMetalHost", namespace)
	if err != nil {
		t.Fatal(err)
	}
	since := map[string]string{}
	for _, host := range hosts {
		begin, _, _ := unstructured.NestedString(host.Object, "status", "operationHistory",
			"provision", "start")
		image, _, _ := unstructured.NestedString(host.Object, "status", "provisioning", "image", "url")
		if begin == "" || image == "" {
			t.Errorf("host %s has image %q since %q", host.GetName(), image, begin)
		}
		since[host.GetName()] = image + " since " + begin
	}
	return since
}
