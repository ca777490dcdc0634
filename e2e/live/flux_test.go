package live

import (
	"context"
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

const (
	fluxedNS, fluxSystem = "fluxed", "flux-system"

	kustomizeAPI = "kustomize.toolkit.fluxcd.io/v1"
	sourceAPI    = "source.toolkit.fluxcd.io/v1"

	gitBucket = "git"
	// rootOwner applies teamOwner, which applies the Cluster. bystander applies something else.
	rootOwner, teamOwner, bystander = "root", "team", "bystander"
)

// fluxed is the fixture of TestLongFlux.
type fluxed struct {
	*fixture
	*operator
	before observe.Objects
	uid    types.UID // of the Cluster on the source
	made   problems  // Clusters that were made again on the source
}

// TestLongFlux moves a workload cluster whose Cluster is applied by a Kustomization of Flux, which
// another one applies. The source runs Flux's controllers on files in an S3 bucket. A move is
// refused while they are at work. With --suspend-gitops it goes through, the Kustomizations stay
// suspended, and the Cluster is never made again on the source; after a rollback they work again.
func TestLongFlux(t *testing.T) {
	f := startWith(t, nil, fleet.Shape{Name: "web", Namespace: fluxedNS, ControlPlanes: 1})
	x := &fluxed{fixture: f}
	ctx, cancel := context.WithTimeout(t.Context(), healthTimeout)
	defer cancel()
	if err := f.source.AddProviders(ctx, lab.FluxSource, lab.FluxKustomize); err != nil {
		t.Fatal(err)
	}
	if err := f.startS3(ctx); err != nil {
		t.Fatal(err)
	}
	x.commit(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Refused", x.testRefused},
		{"RolledBack", x.testRolledBack},
		{"Moved", x.testMoved},
		{"Resumed", x.testResumed},
	} {
		x.operator = &operator{fixture: f, state: t.TempDir()}
		if !t.Run(step.name, func(t *testing.T) { x.t = t; step.run(t) }) {
			t.Fatal("the following scenarios need this one")
		}
	}
}

// commit writes what the Kustomizations apply into a bucket, and waits until they have applied it.
func (x *fluxed) commit(t *testing.T) {
	t.Helper()
	if err := x.s3.CreateBucket(gitBucket); err != nil {
		t.Fatal(err)
	}
	cluster := x.cluster(t)
	x.uid = cluster.GetUID()
	applied := object(cluster.GetAPIVersion(), "Cluster", fluxedNS, cluster.GetName())
	applied.Object["spec"] = cluster.Object["spec"]
	settings := object("v1", "ConfigMap", fluxSystem, bystander)
	settings.Object["data"] = map[string]any{"of": "bystander"}
	x.file(t, rootOwner, kustomization(teamOwner))
	x.file(t, teamOwner, applied)
	x.file(t, bystander, settings)
	credentials := object("v1", "Secret", fluxSystem, gitBucket)
	credentials.Object["stringData"] = map[string]any{"accesskey": x.s3.AccessKey,
		"secretkey": x.s3.SecretKey}
	source := object(sourceAPI, "Bucket", fluxSystem, gitBucket)
	source.Object["spec"] = map[string]any{"interval": "2s", "bucketName": gitBucket,
		"provider": "generic", "region": "us-east-1", "insecure": true,
		"endpoint":  strings.TrimPrefix(x.s3.Endpoint, "http://"),
		"secretRef": map[string]any{"name": gitBucket}}
	x.fixture.create(t, x.source, credentials, source)
	x.awaitCondition(t, source, "True")
	x.fixture.create(t, x.source, kustomization(rootOwner), kustomization(bystander))
	for _, name := range []string{rootOwner, teamOwner, bystander} {
		x.awaitReady(t, name, "True")
	}
	if is := x.cluster(t); is.GetUID() != x.uid || !strings.Contains(fmt.Sprint(is.GetLabels()),
		"kustomize.toolkit.fluxcd.io/name:"+teamOwner) {
		t.Fatalf("Flux has not applied the Cluster: labels %v", is.GetLabels())
	}
	var err error
	if x.before, err = observe.StableInventory(t.Context(), x.source.Kubeconfig(),
		fluxedNS); err != nil {
		t.Fatal(err)
	}
	if err := x.readSecrets(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.snapshot(t.Context()); err != nil { // it makes the store
		t.Fatal(err)
	}
	x.follow(t, x.source, "cluster.x-k8s.io/v1beta2", "Cluster",
		func(_ *lab.Mgmt, event watch.EventType, o *unstructured.Unstructured) {
			if o.GetNamespace() == fluxedNS && o.GetUID() != x.uid {
				x.made.add("%s %s is %s", event, o.GetName(), o.GetUID())
			}
		})
}

// file writes a manifest into the folder of a Kustomization.
func (x *fluxed) file(t *testing.T, folder string, o *unstructured.Unstructured) {
	t.Helper()
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(x.s3.Root(), gitBucket, folder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "manifest.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The S3 server has the ETag of an object in an attribute of its file.
	etag := fmt.Sprintf("%x", md5.Sum(text))
	if err := syscall.Setxattr(path, "user.etag", []byte(etag), 0); err != nil {
		t.Fatal(err)
	}
}

// kustomization applies the folder of its name every two seconds.
func kustomization(name string) *unstructured.Unstructured {
	o := object(kustomizeAPI, "Kustomization", fluxSystem, name)
	o.Object["spec"] = map[string]any{"interval": "2s", "path": "./" + name, "prune": true,
		"sourceRef": map[string]any{"kind": "Bucket", "name": gitBucket}}
	return o
}

func (x *fluxed) cluster(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", fluxedNS, "web")
	if err := x.clients[x.source].Get(t.Context(), keyOf(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func (x *fluxed) owner(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	o := object(kustomizeAPI, "Kustomization", fluxSystem, name)
	return o, x.clients[x.source].Get(ctx, keyOf(o), o)
}

// awaitReady waits until the last attempt to apply a Kustomization ended so, and returns what Flux
// says of it.
func (x *fluxed) awaitReady(t *testing.T, name, status string) (message string) {
	t.Helper()
	return x.awaitCondition(t, object(kustomizeAPI, "Kustomization", fluxSystem, name), status)
}

func (x *fluxed) awaitCondition(t *testing.T, o *unstructured.Unstructured, status string) (
	message string) {
	t.Helper()
	await(t, o.GetKind()+" "+o.GetName(), func(ctx context.Context) error {
		if err := x.clients[x.source].Get(ctx, keyOf(o), o); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Ready" {
				message, _ = c["message"].(string)
				if c["status"] == status {
					return nil
				}
			}
		}
		return fmt.Errorf("%w: %s", errNotYet, message)
	})
	return message
}

// awaitIntervals waits until Flux has applied the bystander three times more: what it deletes is
// there again each time.
func (x *fluxed) awaitIntervals(t *testing.T) {
	t.Helper()
	for range 3 {
		settings := object("v1", "ConfigMap", fluxSystem, bystander)
		if err := x.clients[x.source].Delete(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
		await(t, "the ConfigMap of the bystander", func(ctx context.Context) error {
			return x.clients[x.source].Get(ctx, keyOf(settings), settings)
		})
	}
}

// assertSuspended asserts which of the Kustomizations of the Cluster are suspended.
func (x *fluxed) assertSuspended(t *testing.T, want bool) {
	t.Helper()
	for _, name := range []string{rootOwner, teamOwner} {
		o, err := x.owner(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if is, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); is != want {
			t.Errorf("Kustomization %s is suspended: %t, want %t", name, is, want)
		}
	}
}

func (x *fluxed) testRefused(t *testing.T) {
	for _, args := range [][]string{x.moveArgs("plan", x.source, x.target, fluxedNS),
		append(x.moveArgs("run", x.source, x.target, fluxedNS), "--yes")} {
		out := x.run(codeFindings, args...)
		if !strings.Contains(out.text(), "gitops-owner") {
			t.Errorf("the refusal does not say gitops-owner:\n%s", out.text())
		}
		last := 0
		for _, name := range []string{rootOwner, teamOwner} {
			at := strings.Index(out.text(), "flux suspend kustomization "+name+" -n "+fluxSystem)
			if at < last {
				t.Errorf("no command suspends %s after its root:\n%s", name, out.text())
			}
			last = at
		}
	}
	x.assertSuspended(t, false)
	x.assertIntactOn(t, x.source, x.before, nil, fluxedNS)
}

// testRolledBack kills a move while it creates Machines on the target, and rolls it back.
func (x *fluxed) testRolledBack(t *testing.T) {
	x.runAndKill(moment{x.target, "Machine", fluxedNS, created}, append(
		x.moveArgs("run", x.source, x.target, fluxedNS), "--yes", "--suspend-gitops")...)
	x.assertSuspended(t, true)
	x.run(codeDone, slices.Concat([]string{"operation", "rollback", "latest"},
		x.moveFlags(x.source, x.target))...)
	x.assertSuspended(t, false)
	x.assertIntactOn(t, x.source, x.before, nil, fluxedNS)
	assertNone(t, "left on the target", observe.Left(x.inventoryOf(t, x.target, fluxedNS)))
	x.made.none(t, "made again on the source")

	// They work again: a label that Git says comes back.
	cluster := x.cluster(t)
	cluster.SetLabels(nil)
	if err := x.clients[x.source].Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	await(t, "labels of the Cluster", func(ctx context.Context) error {
		if err := x.clients[x.source].Get(ctx, keyOf(cluster), cluster); err != nil {
			return err
		}
		if cluster.GetLabels()["kustomize.toolkit.fluxcd.io/name"] != teamOwner {
			return errNotYet
		}
		return nil
	})
}

func (x *fluxed) testMoved(t *testing.T) {
	before, err := observe.StableInventory(t.Context(), x.source.Kubeconfig(), fluxedNS)
	if err != nil {
		t.Fatal(err)
	}
	out := x.run(codeDone, append(x.moveArgs("run", x.source, x.target, fluxedNS), "--yes",
		"--suspend-gitops")...)
	if !strings.Contains(out.text(), "gitops-suspended") {
		t.Errorf("the move does not name what it leaves suspended:\n%s", out.text())
	}
	x.assertMoved(t, x.source, x.target, before, fluxedNS)
	x.awaitIntervals(t)
	x.assertSuspended(t, true)
	assertNone(t, "left on the source", observe.Left(x.inventoryOf(t, x.source, fluxedNS)))
	x.made.none(t, "made again on the source")
}

// testResumed resumes the Kustomizations, as somebody does who has forgotten to remove from Git
// what has moved. Flux is denied to make the Cluster again.
func (x *fluxed) testResumed(t *testing.T) {
	for _, name := range []string{rootOwner, teamOwner} {
		o, err := x.owner(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.clients[x.source].Patch(t.Context(), o, client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"suspend":false}}`))); err != nil {
			t.Fatal(err)
		}
	}
	message := x.awaitReady(t, teamOwner, "False")
	if !strings.Contains(message, "mgmtd-moved") {
		t.Errorf("Flux does not say what denies the Cluster: %s", message)
	}
	x.awaitIntervals(t)
	cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", fluxedNS, "web")
	if err := x.clients[x.source].Get(t.Context(), keyOf(cluster), cluster); !apierrors.IsNotFound(
		err) {
		t.Errorf("the Cluster is on the source again: %v", err)
	}
	x.made.none(t, "made again on the source")
}
