//go:build api

package move_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// BenchmarkMoveFleet measures a move of a whole fleet of MGMTD_BENCH_UNITS workload clusters of 8
// Machines, by a process of its own, between bare servers whose controllers do nothing but
// acknowledge pauses. Beside the time it reports the part of it that the needed requests take by
// themselves (floor), and together with the acknowledgements (floor-acks), both measured before
// these controllers begin, what the source served in bytes of one capture (captures), the memory of
// the process, and how many times as long clusterctl takes to move the fleet back (clusterctl).
// With MGMTD_BENCH_MOVE_ONLY it leaves out the floors and clusterctl, which take longer than the
// move. More than 300 workload clusters need MGMTD_TEST_MEMORY=8GiB (kubetest).
func BenchmarkMoveFleet(b *testing.B) {
	units, moveOnly := 100, os.Getenv("MGMTD_BENCH_MOVE_ONLY") != ""
	if text := os.Getenv("MGMTD_BENCH_UNITS"); text != "" {
		var err error
		units, err = strconv.Atoi(text)
		must(b, err)
	}
	b.Setenv("GOGC", "") // as mgmtctl has it
	servers.Clear(b)
	servers.Fleet(b, 0, "--namespace-prefix", "moves-", "--workloads", fmt.Sprint(units),
		"--machines", "8", "--fast")
	fx := &fixture{t: b, dir: b.TempDir(), limit: time.Hour}
	for i := range fx.sides {
		s := &side{Mgmt: servers.Connect(b, i)}
		var err error
		s.kinds, err = s.Reader().Kinds(b.Context())
		must(b, err)
		fx.sides[i] = s
	}
	fx.makeStore()
	var floor, withAcks time.Duration
	if !moveOnly {
		copies := fx.copies()
		floor, withAcks = fx.floor(copies, "floor", 0), fx.floor(copies, "floor-acks", acknowledgements)
	}
	for i := range fx.sides {
		servers.Acknowledge(b, i) // not before, since a controller would write to what the floors send
	}
	for range b.N {
		fx.at = 0
		began := listBytes(b, 0)
		objects := fx.captureOnce()
		capture := listBytes(b, 0) - began
		o := fx.order(doMove)
		o.Spec.Selection, o.Defaults = restore.Selection{}, true
		began = listBytes(b, 0)
		b.ResetTimer()
		start := time.Now()
		e, err := fx.run(o)
		took := time.Since(start)
		b.StopTimer()
		must(b, err)
		if e.State != string(catalog.Succeeded) {
			b.Fatalf("%s: %s %v", e.State, e.Message, e.Findings)
		}
		b.ReportMetric((listBytes(b, 0)-began)/capture, "captures")
		b.ReportMetric(float64(e.Peak)/(1<<20), "MiB-peak")
		b.ReportMetric(float64(objects), "objects")
		if moveOnly {
			continue
		}
		b.ReportMetric(float64(floor)*float64(objects)/float64(took), "floor")
		b.ReportMetric(float64(withAcks)*float64(objects)/float64(took), "floor-acks")
		fx.at = 1
		b.ReportMetric(float64(fx.clusterctl())/float64(took), "clusterctl")
	}
}

// everything calls fn with each object of the fleet on the source.
func (fx *fixture) everything(fn func(k kube.Kind, raw []byte)) {
	for _, k := range fx.source().kinds {
		if !k.Namespaced {
			continue
		}
		_, err := fx.source().Reader().List(fx.t.Context(), k, kube.ListOptions{Whole: true},
			func(raw []byte) error {
				fn(k, raw)
				return nil
			})
		must(fx.t, err)
	}
}

// captureOnce reads everything once, and returns how many objects that are.
func (fx *fixture) captureOnce() (n int) {
	fx.everything(func(kube.Kind, []byte) { n++ })
	return n
}

// clusterctl returns how long the real clusterctl takes to move the fleet to the other side, with
// one command for each namespace.
func (fx *fixture) clusterctl() time.Duration {
	namespaces := map[string]bool{}
	fx.everything(func(k kube.Kind, raw []byte) {
		if k.GroupKind == capi.Cluster {
			namespaces[gjson.GetBytes(raw, "metadata.namespace").String()] = true
		}
	})
	fx.unfence()
	lab, err := kubetest.Lab()
	must(fx.t, err)
	began := time.Now()
	for namespace := range namespaces {
		cmd := exec.CommandContext(fx.t.Context(), filepath.Join(filepath.Dir(lab), "clusterctl"), "move",
			"--kubeconfig", servers.Options(fx.at).KubeconfigFile,
			"--to-kubeconfig", servers.Options(1-fx.at).KubeconfigFile, "--namespace", namespace)
		cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
			"XDG_CONFIG_HOME="+fx.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			fx.t.Fatalf("clusterctl: %v\n%s", err, out)
		}
	}
	return time.Since(began)
}

// unfence lifts the fence of the move from the target, which would deny what clusterctl does there.
func (fx *fixture) unfence() {
	const name = "mgmtd-moved"
	ctx := fx.t.Context()
	k := kube.Kind{GroupKind: object.GroupKind{Group: "admissionregistration.k8s.io",
		Kind: "ValidatingAdmissionPolicyBinding"}, Version: "v1",
		Resource: "validatingadmissionpolicybindings"}
	live, err := fx.target().Reader().Get(ctx, k, "", name)
	must(fx.t, err)
	must(fx.t, fx.target().Writer().Delete(ctx, k, "", name, live.GetUID(), ""))
}

// acknowledgements is how often controllers publish about an object of a move whether it is paused:
// on the source, and on the target before and after its release.
const acknowledgements = 3

// copied is an object of the fleet as it is created on the target.
type copied struct {
	kube.Kind
	*unstructured.Unstructured
}

// copies returns objects of the fleet, about 2000 at most, so many of each kind as the fleet has in
// proportion: they cost an API server very differently.
func (fx *fixture) copies() (objects []copied) {
	const most = 2000
	each, n := fx.captureOnce()/most+1, 0
	fx.everything(func(k kube.Kind, raw []byte) {
		u := &unstructured.Unstructured{}
		must(fx.t, u.UnmarshalJSON(raw))
		if k.Group == "" && k.Kind != "Secret" {
			return
		}
		if n++; n%each != 0 {
			return
		}
		u.SetName(fmt.Sprintf("%s-%d", u.GetName(), len(objects)))
		u.SetOwnerReferences(nil)
		u.SetUID("")
		u.SetResourceVersion("")
		objects = append(objects, copied{k, u})
	})
	return objects
}

// floor returns how long one object takes when the requests that every move needs are sent by
// themselves, in a namespace of their own: it is created, gets its status, so many acknowledgements
// if its controller publishes them, and its managedFields if these have an applier, and is patched
// and deleted.
func (fx *fixture) floor(objects []copied, namespace string, acknowledgements int) time.Duration {
	ns := &unstructured.Unstructured{}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	ns.SetName(namespace)
	_, err := fx.target().Writer().Create(fx.t.Context(), kube.NamespaceKind, ns)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		fx.t.Fatal(err)
	}
	began := time.Now()
	var g task.Group
	g.SetLimit(32)
	for _, o := range objects {
		u := o.DeepCopy()
		u.SetNamespace(namespace)
		g.Go(func() error { return fx.send(fx.t.Context(), copied{o.Kind, u}, acknowledgements) })
	}
	must(fx.t, g.Wait())
	return time.Since(began) / time.Duration(len(objects))
}

// send sends what floor says of one object.
func (fx *fixture) send(ctx context.Context, o copied, acknowledgements int) error {
	w := fx.target().Writer()
	applied := slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Operation == metav1.ManagedFieldsOperationApply
	})
	o.SetManagedFields(nil)
	live, err := w.Create(ctx, o.Kind, o.Unstructured)
	if err != nil {
		return err
	}
	if status, ok := o.Object["status"]; ok && o.Status {
		live.Object["status"] = status
		if live, err = current(ctx, o.Kind, live, w.UpdateStatus); err != nil {
			return err
		}
	}
	raw, err := live.MarshalJSON()
	if err != nil {
		return err
	}
	if gjson.GetBytes(raw, `status.conditions.#(type=="Paused")`).Exists() {
		for i := range acknowledgements {
			kubetest.Publish(live, i%2 == 0)
			if live, err = current(ctx, o.Kind, live, w.UpdateStatus); err != nil {
				return err
			}
		}
	}
	if applied {
		live.SetManagedFields(nil)
		live.SetAnnotations(map[string]string{"example.test/fields": "written"})
		if live, err = current(ctx, o.Kind, live, w.Update); err != nil {
			return err
		}
	}
	if live, err = w.PatchMetadata(ctx, o.Kind, o.GetNamespace(), live.GetName(), map[string]any{
		"uid": live.GetUID(), "finalizers": nil,
		"annotations": map[string]any{restore.AnnotationDeleteForMove: ""}}); err != nil {
		return err
	}
	return w.Delete(ctx, o.Kind, o.GetNamespace(), live.GetName(), live.GetUID(), "")
}

// current writes an object. A controller of the target may have been faster: the request was sent
// all the same.
func current(ctx context.Context, k kube.Kind, u *unstructured.Unstructured,
	write func(context.Context, kube.Kind, *unstructured.Unstructured) (
		*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	is, err := write(ctx, k, u)
	if apierrors.IsConflict(err) {
		return u, nil
	}
	return is, err
}
