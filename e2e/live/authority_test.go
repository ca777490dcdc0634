package live

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// authorityPrefix begins the namespaces of TestLongAuthorities, each with one workload cluster.
const authorityPrefix = "auth-"

// The workload clusters of TestLongAuthorities.
const (
	expiredName = "expired" // its kubeconfig has expired
	renewedName = "renewed" // so has its kubeconfig, which the restore renews
	withoutCA   = "without-ca"
	livingName  = "living" // is at work on the target; objects of the snapshot name it
	ownName     = "own"    // is the source itself
	// ownNamespace is that of the Cluster own.
	ownNamespace = authorityPrefix + ownName
)

// authorityFleet is the fixture of TestLongAuthorities.
type authorityFleet struct {
	*fixture
	living observe.Objects // of the target, before the restores
}

// TestLongAuthorities restores workload clusters whose CA is missing or whose kubeconfig has
// expired, and the Cluster of the source itself: the source is self-managed (manageItself) and is
// lost. The snapshot also has orphans that are aimed at a workload cluster of the target. None
// attaches to that, no controller generates a CA, and no Machine is created or deleted.
func TestLongAuthorities(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	a := &authorityFleet{fixture: &fixture{dir: t.TempDir()}}
	t.Cleanup(a.close)
	a.build(t)
	o := a.operate(t)
	gone := []string{"--source-is-gone", "--force", "source-seen-recently"}

	p := o.plan(codeFindings, append(gone, "--include-unowned")...)
	a.assertPlan(t, p)
	o.restore(codeDone, append(gone, "--namespace", authorityPrefix+expiredName)...)
	printProgress("restored " + expiredName)
	// The controller of the control plane renews it, once it is released.
	a.awaitRenewed(t, expiredName)
	a.assertRestoredWithout(t, expiredName)

	// The own Cluster of the source stays paused, and is no failure.
	assertNamesOwn(t, o.restore(codeDone, append(gone, "--namespace", ownNamespace)...))
	a.assertOwnIsPaused(o)
	printProgress("restored " + ownName)
	own := o.inventory(ownNamespace)
	o.run(codeDone, append([]string{"operation", "resume", "latest"}, o.flags()...)...)
	o.assertUnchanged(own, ownNamespace)

	assertNamesOwn(t, o.restore(codeLeft, append(gone, "--include-unowned",
		"--renew-kubeconfigs")...))
	a.assertOwnIsPaused(o)
	o.assertUnchanged(own, ownNamespace)
	if out := o.run(codeLeft, "operation", "watch", "latest",
		"--standalone"); !strings.Contains(out.stdout, a.unit(renewedName)+"/renew-kubeconfig") {
		t.Errorf("the kubeconfig of %s was not renewed:\n%s", renewedName, out.text())
	}
	printProgress("restored the rest")
	a.awaitRenewed(t, renewedName)
	a.assertRestoredWithout(t, renewedName)
	a.assertNothingAttached(o)
	assertNone(t, "events", observe.UnexplainedByRestore(a.watcher.Events(), a.before))
	if err := a.watcher.Stop(); err != nil {
		t.Error(err)
	}
}

// assertNamesOwn asserts that a restore says which Cluster it leaves paused, why, and what to do.
func assertNamesOwn(t *testing.T, out output) {
	t.Helper()
	for _, want := range []string{"own-cluster", ownNamespace + "/" + ownName,
		"it is the Cluster of the source management cluster itself; it is restored and stays paused",
		"leave it paused until it is decided what becomes of the old management cluster"} {
		if !strings.Contains(out.stdout+out.stderr, want) {
			t.Errorf("the restore does not say %q:\n%s", want, out.text())
		}
	}
}

func (a *authorityFleet) unit(name string) string { return authorityPrefix + name + "/" + name }

// assertPlan asserts what a plan of everything says of the missing CA, of the expired kubeconfigs
// and of what was planted.
func (a *authorityFleet) assertPlan(t *testing.T, p plan) {
	t.Helper()
	for _, want := range []struct {
		code, unit string
		findings   int
	}{
		{"ca-missing", a.unit(withoutCA), 1},
		{"kubeconfig-expired", a.unit(expiredName), 1},
		{"kubeconfig-expired", a.unit(renewedName), 1},
		{"own-cluster", a.unit(ownName), 1},
		{"attaches-to-live", "", 2},
	} {
		var found []string
		for _, f := range p.Findings {
			if f.Code == want.code && f.Unit == want.unit {
				found = append(found, fmt.Sprint(f.Severity, " ", f.Ref, ": ", f.Message))
			}
		}
		if len(found) != want.findings {
			t.Errorf("%d findings %s of %q, want %d: %q", len(found), want.code, want.unit, want.findings,
				found)
		}
	}
	for _, unit := range p.Units {
		if unit.Blocked != (unit.Name == a.unit(withoutCA)) {
			t.Errorf("unit %s: blocked %v", unit.Name, unit.Blocked)
		}
	}
}

// awaitRenewed waits until the kubeconfig of a workload cluster on the target has not expired.
func (a *authorityFleet) awaitRenewed(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), healthTimeout)
	defer cancel()
	var last error
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		if last = a.checkRenewed(ctx, name); last == nil {
			return
		}
	}
	t.Errorf("the kubeconfig of %s: %v", name, last)
}

func (a *authorityFleet) checkRenewed(ctx context.Context, name string) error {
	secret := object("v1", "Secret", authorityPrefix+name, name+"-kubeconfig")
	if err := a.clients[a.target].Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return err
	}
	config, err := clientcmd.Load(valueOf(secret, "value"))
	if err != nil {
		return err
	}
	for _, user := range config.AuthInfos {
		block, _ := pem.Decode(user.ClientCertificateData)
		if block == nil {
			return fmt.Errorf("it has no client certificate")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		if time.Until(cert.NotAfter) < 300*24*time.Hour {
			return fmt.Errorf("its certificate expires at %s", cert.NotAfter)
		}
	}
	return nil
}

// assertRestoredWithout asserts that a workload cluster is as it was, but for its kubeconfig.
func (a *authorityFleet) assertRestoredWithout(t *testing.T, name string) {
	t.Helper()
	namespace := authorityPrefix + name
	a.assertRestored(t, a.before.In(namespace), []string{"Secret/" + namespace + "/" + name +
		"-kubeconfig differs in data.value"}, namespace)
}

// assertNothingAttached asserts that the workload cluster of the target is as it was, that nothing
// of what was planted is there, and that no second CA was made for one whose CA is missing.
func (a *authorityFleet) assertNothingAttached(o *operator) {
	o.t.Helper()
	o.assertUnchanged(a.living, authorityPrefix+livingName)
	c := a.clients[a.target]
	absent := []*unstructured.Unstructured{object("v1", "Namespace", "", gitOpsNamespace),
		object("cluster.x-k8s.io/v1beta2", "Cluster", authorityPrefix+withoutCA, withoutCA),
		object("v1", "Secret", authorityPrefix+withoutCA, withoutCA+"-ca")}
	for _, kind := range []string{"Machine", "MachineHealthCheck"} {
		absent = append(absent, object("cluster.x-k8s.io/v1beta2", kind, authorityPrefix+livingName,
			"planted"))
	}
	for _, object := range absent {
		err := c.Get(o.t.Context(), client.ObjectKeyFromObject(object), object)
		if !apierrors.IsNotFound(err) {
			o.t.Errorf("%s is on the target: %v", observe.RefOf(object), err)
		}
	}
	if problems := observe.CompareMachines(a.living,
		o.inventory(authorityPrefix+livingName)); !slices.Equal(problems, nil) {
		o.t.Errorf("Machines of %s: %q", livingName, problems)
	}
}
