package kubetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// publishers are the kinds whose controllers publish the condition Paused.
var publishers = []string{
	"Cluster", "KubeadmControlPlane", "MachineDeployment", "MachineSet", "Machine", "MachinePool",
	"MachineHealthCheck", "KubeadmConfig", "DevCluster", "DevMachine",
	"DevMachinePool", "ClusterResourceSet",
}

// Acknowledge does on server i, until the test ends, the one thing that a pause needs of the
// controllers which bare servers lack: it publishes Paused, and on Clusters with a class
// TopologyReconciled, as they do.
func (s *Servers) Acknowledge(t testing.TB, i int) {
	t.Helper()
	m := s.Connect(t, i)
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Options(i).KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &acknowledger{
		writer: m.Writer(), kinds: map[object.GroupKind]followed{},
		todo: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[object.Ref](10*time.Millisecond,
				time.Second)),
	}
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, k := range kinds {
		if slices.Contains(publishers, k.Kind) && k.Status {
			a.kinds[k.GroupKind] = followed{k, informers.ForResource(schema.GroupVersionResource{
				Group: k.Group, Version: k.Version, Resource: k.Resource}).Informer()}
		}
	}
	for gk, f := range a.kinds {
		if _, err := f.informer.AddEventHandler(a.follow(gk)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	var done sync.WaitGroup
	done.Go(func() { a.work(ctx, t) })
	t.Cleanup(func() {
		cancel()
		a.todo.ShutDown()
		done.Wait()
		informers.Shutdown()
	})
}

const (
	annotationPaused = "cluster.x-k8s.io/paused"
	labelCluster     = "cluster.x-k8s.io/cluster-name"
)

var clusterKind = object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}

// acknowledger is one controller for all publishers.
type acknowledger struct {
	writer *kube.Writer
	kinds  map[object.GroupKind]followed
	todo   workqueue.TypedRateLimitingInterface[object.Ref]
}

type followed struct {
	kind     kube.Kind
	informer cache.SharedIndexInformer
}

// follow handles an object that changed, and for a Cluster all objects that carry its name.
func (a *acknowledger) follow(gk object.GroupKind) cache.ResourceEventHandlerFuncs {
	seen := func(object any) {
		u := object.(*unstructured.Unstructured)
		a.todo.Add(refOf(gk, u))
		if gk != clusterKind {
			return
		}
		for other, f := range a.kinds {
			for _, object := range f.informer.GetStore().List() {
				if o := object.(*unstructured.Unstructured); o.GetNamespace() == u.GetNamespace() &&
					o.GetLabels()[labelCluster] == u.GetName() {
					a.todo.Add(refOf(other, o))
				}
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: seen,
		UpdateFunc: func(_, object any) { seen(object) }}
}

func refOf(gk object.GroupKind, u *unstructured.Unstructured) object.Ref {
	return object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

func (a *acknowledger) work(ctx context.Context, t testing.TB) {
	for {
		r, ended := a.todo.Get()
		if ended {
			return
		}
		err := a.acknowledge(ctx, r)
		switch {
		case err == nil || apierrors.IsNotFound(err):
			a.todo.Forget(r)
		case ctx.Err() == nil:
			if !apierrors.IsConflict(err) { // its newer state is about to be seen
				t.Log("acknowledge", r, err)
			}
			a.todo.AddRateLimited(r)
		}
		a.todo.Done(r)
	}
}

func (a *acknowledger) acknowledge(ctx context.Context, r object.Ref) error {
	u := a.get(r)
	if u == nil {
		return nil
	}
	_, paused := u.GetAnnotations()[annotationPaused]
	cluster := u
	if r.GroupKind() != clusterKind {
		cluster = a.get(object.Ref{Group: clusterKind.Group, Kind: clusterKind.Kind,
			Namespace: r.Namespace,
			Name:      u.GetLabels()[labelCluster]})
	}
	if cluster != nil {
		all, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
		paused = paused || all
	}
	if !publish(u, paused) {
		return nil
	}
	_, err := a.writer.UpdateStatus(ctx, a.kinds[r.GroupKind()].kind, u)
	return err
}

// get copies an object from what the informers know.
func (a *acknowledger) get(r object.Ref) *unstructured.Unstructured {
	object, ok, err := a.kinds[r.GroupKind()].informer.GetStore().GetByKey(r.Namespace + "/" + r.Name)
	if err != nil || !ok {
		return nil
	}
	return object.(*unstructured.Unstructured).DeepCopy()
}

// publish sets the conditions that report a pause, and reports whether they changed.
func publish(u *unstructured.Unstructured, paused bool) bool {
	status, reason := "False", "NotPaused"
	if paused {
		status, reason = "True", "Paused"
	}
	changed := setCondition(u, "Paused", status, reason)
	if _, classy, _ := unstructured.NestedMap(u.Object, "spec", "topology"); classy {
		status, reason = "True", "ReconcileSucceeded"
		if paused {
			status, reason = "False", "Paused"
		}
		changed = setCondition(u, "TopologyReconciled", status, reason) || changed
	}
	return changed
}

func setCondition(u *unstructured.Unstructured, name, status, reason string) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	want := map[string]any{
		"type": name, "status": status, "message": "", "reason": reason,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		"observedGeneration": u.GetGeneration(),
	}
	at := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == name })
	switch {
	case at < 0:
		conditions = append(conditions, want)
	case conditions[at].(map[string]any)["status"] == status &&
		conditions[at].(map[string]any)["observedGeneration"] == u.GetGeneration():
		return false
	default:
		conditions[at] = want
	}
	_ = unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions")
	return true
}
