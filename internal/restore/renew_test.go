package restore

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// expired is a restore of the workload cluster n/w, whose kubeconfig has expired. change changes
// the objects of the source.
func expired(t *testing.T, s *workloadtest.Server, change func(objects []string)) *trial {
	t.Helper()
	s.Set("w", []workload.Node{realNode("cp", true), realNode("worker", false)}, "cp")
	objects := []string{needsNamespace, strings.Replace(realControlPlane, `"spec":{}`,
		`"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"encryptionAlgorithm":"ECDSA-P256"}}}`, 1),
		realCluster("w"),
		realMachine("w", "cp", true, ""), realMachine("w", "worker", false, ""),
		strings.Replace(realSecret("w", "ca", "tls.crt", s.CA.Cert), `"data":{`,
			`"data":{"tls.key":"`+base64.StdEncoding.EncodeToString(s.CA.Key)+`",`, 1),
		realSecret("w", "kubeconfig", "value", s.Kubeconfig(t, time.Now().Add(-time.Minute)))}
	for _, purpose := range []string{"etcd", "proxy"} {
		ca := workloadtest.NewCA(t)
		objects = append(objects, strings.Replace(realSecret("w", purpose, "tls.crt", ca.Cert),
			`"data":{`, `"data":{"tls.key":"`+base64.StdEncoding.EncodeToString(ca.Key)+`",`, 1))
	}
	if change != nil {
		change(objects)
	}
	x := newTrial(t, newMemory(t, "source", objects...), newMemory(t, "target"))
	x.spec.RenewKubeconfigs = true
	return x
}

// kubeconfig returns the kubeconfig of n/w on the target.
func (x *trial) kubeconfig(t *testing.T) *workload.Kubeconfig {
	t.Helper()
	k := kubeconfigOf(x.target.get(t, "Secret/n/w-kubeconfig"))
	if k == nil {
		t.Fatal("there is no kubeconfig on the target")
	}
	return k
}

// TestAnExpiredKubeconfigIsRenewedBeforeTheRelease: only where it is asked for, and the plan and
// the run compare the workload cluster through the new one.
func TestAnExpiredKubeconfigIsRenewedBeforeTheRelease(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	x := expired(t, s, nil)
	x.spec.RenewKubeconfigs = false
	if _, err := x.run(t); err != nil || !x.kubeconfig(t).IsExpired(time.Now()) {
		t.Errorf("renewed and not asked for: %v", err)
	}
	x = expired(t, s, nil)
	if _, err := x.run(t); err != nil || x.released(t) != "n/w" {
		t.Fatalf("released %q: %v", x.released(t), err)
	}
	list := found(x.plan, object.CodeKubeconfigExpired)
	if len(list) != 1 || list[0].Severity != object.Info ||
		len(found(x.plan, object.CodeMachinesCompared)) != 1 {
		t.Errorf("findings %v", x.plan.Findings)
	}
	if _, err := x.kubeconfig(t).Ask(t.Context(), workload.Certificates(s.CA.Cert), nil); err != nil {
		t.Errorf("the new kubeconfig: %v", err)
	}
	if state, err := x.catalog.Journal(x.id, catalog.JournalOptions{}).State(t.Context(),
		renewStep("n/w")); err != nil || state != catalog.StepDone {
		t.Errorf("the step is %q: %v", state, err)
	}
	// A second restore finds it renewed, with and without the option.
	for _, renew := range []bool{true, false} {
		x.spec.RenewKubeconfigs = renew
		if _, err := x.again(t); err != nil {
			t.Errorf("a second restore: %v", err)
		}
	}
}

// TestI1TheRenewedKubeconfigShowsWhatHappenedSince: without it the workload cluster cannot be
// asked.
func TestI1TheRenewedKubeconfigShowsWhatHappenedSince(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	x := expired(t, s, nil)
	x.target.refuse = func(*unstructured.Unstructured) error {
		s.Set("w", []workload.Node{realNode("cp2", true), realNode("worker", false)}, "cp2")
		return nil
	}
	if _, err := x.run(t); err == nil || x.released(t) != "" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
	if plan := x.makePlan(t); len(found(plan, object.CodeControlPlaneUnknown)) != 1 {
		t.Errorf("findings %v", plan.Findings)
	}
}

// TestOnlyWhatClusterAPIMadeAndItsCASignsIsRenewed: the others are restored as they are.
func TestOnlyWhatClusterAPIMadeAndItsCASignsIsRenewed(t *testing.T) {
	const clusterSecret = `"type":"cluster.x-k8s.io/secret"`
	s := workloadtest.New(t, workloadtest.NewCA(t))
	replaceIn := func(purpose, old, text string) func(objects []string) {
		return func(objects []string) {
			i := slices.IndexFunc(objects, func(o string) bool {
				return strings.Contains(o, `"name":"w-`+purpose+`"`)
			})
			if objects[i] = strings.Replace(objects[i], old, text, 1); !strings.Contains(objects[i], text) {
				t.Fatalf("%s is not in the Secret %s", old, purpose)
			}
		}
	}
	for name, change := range map[string]func(objects []string){
		"provided by a user": replaceIn("kubeconfig", clusterSecret, `"type":"Opaque"`),
		"owned by nobody": replaceIn("kubeconfig", `"ownerReferences":[{"kind":"Cluster","name":"w"}]`,
			`"ownerReferences":[]`),
		"with a CA whose key is elsewhere": replaceIn("ca",
			base64.StdEncoding.EncodeToString(s.CA.Key), ""),
		"not expired": func(objects []string) {
			i := slices.IndexFunc(objects, func(o string) bool {
				return strings.Contains(o, `"name":"w-kubeconfig"`)
			})
			objects[i] = realSecret("w", "kubeconfig", "value", s.Kubeconfig(t, time.Now().Add(time.Minute)))
		},
	} {
		x := expired(t, s, change)
		before := x.source.get(t, "Secret/n/w-kubeconfig").Object["data"]
		if _, err := x.run(t); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(before, x.target.get(t, "Secret/n/w-kubeconfig").Object["data"]); diff != "" {
			t.Errorf("%s: it is changed", name)
		}
		list := found(x.plan, object.CodeKubeconfigExpired)
		if name != "not expired" && (len(list) != 1 || list[0].Severity != object.Warning ||
			!strings.Contains(list[0].Message, "cannot be renewed")) {
			t.Errorf("%s: %v", name, list)
		}
	}
}

// TestARestoreThatRenewsGoesOnAfterEachWrite: the run dies after each of its writes, with a Machine
// that is gone, and is resumed, or completed by another operation.
func TestARestoreThatRenewsGoesOnAfterEachWrite(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	for writes := int64(0); ; writes++ {
		for _, another := range []bool{false, true} {
			x := expired(t, s, nil)
			s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
			x.spec.Force = object.Forced{object.CodeMachinesGone: ""}
			host := &lostHost{memory: x.target, writes: writes, always: true,
				store: directory.New(t.TempDir())}
			x.writer = host
			_, err := x.run(t)
			if !host.lost.Load() {
				if err != nil || writes < 10 {
					t.Errorf("a restore of %d writes: %v", writes, err)
				}
				return
			}
			x.writer = nil
			if another {
				_, err = x.again(t)
			} else {
				_, err = x.run(t)
			}
			if err != nil || x.released(t) != "n/w" || x.kubeconfig(t).IsExpired(time.Now()) ||
				!another && len(x.skipsRemediation()) > 0 {
				t.Errorf("another %v after %d writes: released %q, held %q: %v", another, writes,
					x.released(t), x.skipsRemediation(), err)
			}
		}
	}
}

// TestARestoreThatRenewedIsUndone: nothing stays of it.
func TestARestoreThatRenewedIsUndone(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	x := expired(t, s, nil)
	before := left(x.target)
	x.hooks.BeforeRelease = func(context.Context, Unit) error { return errDied }
	if _, err := x.run(t); err == nil || x.kubeconfig(t).IsExpired(time.Now()) {
		t.Fatalf("not renewed, or released: %v", err)
	}
	if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, left(x.target)); diff != "" {
		t.Error(diff)
	}
}
