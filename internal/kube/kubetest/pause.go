package kubetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// cluster-api-provider-aws v2.13, util/paused; cluster-api-provider-vsphere v1.16, controllers
	"AWSCluster", "AWSMachine", "AWSManagedCluster", "AWSManagedControlPlane",
	"AWSManagedMachinePool", "AWSMachineTemplate", "EKSConfig", "ROSACluster", "ROSAControlPlane",
	"ROSAMachinePool", "VSphereCluster", "VSphereMachine", "VSphereVM", "VSphereClusterIdentity",
	"VSphereDeploymentZone",
}

// Acknowledge stands in, on server i and until the test ends, for the controllers that bare servers
// lack. It does only what a pause needs of them: it publishes Paused on every object whose kind has
// that condition, and TopologyReconciled on Clusters with a class.
func (s *Servers) Acknowledge(t testing.TB, i int) {
	t.Helper()
	s.AcknowledgeIn(t, i, metav1.NamespaceAll)
}

// AcknowledgeIn is Acknowledge for one namespace, which need not exist. Call it once the objects
// are complete: a test that writes their status would conflict with it. The channel receives after
// Clusters of the namespace have changed; it holds one value.
func (s *Servers) AcknowledgeIn(t testing.TB, i int, namespace string) (changed <-chan struct{}) {
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
		writer: m.Writer(), kinds: map[object.GroupKind]followed{}, changed: make(chan struct{}, 1),
		todo: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[object.Ref](time.Millisecond,
				100*time.Millisecond)),
	}
	informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	for _, k := range kinds {
		if slices.Contains(publishers, k.Kind) && k.Status &&
			strings.HasSuffix(k.Group, "cluster.x-k8s.io") {
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
	for range 4 {
		done.Go(func() { a.work(ctx, t) })
	}
	t.Cleanup(func() {
		cancel()
		a.todo.ShutDown()
		done.Wait()
		informers.Shutdown()
	})
	return a.changed
}

const (
	annotationPaused = "cluster.x-k8s.io/paused"
	labelCluster     = "cluster.x-k8s.io/cluster-name"
)

var clusterKind = object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}

// acknowledger is one controller for all publishers.
type acknowledger struct {
	writer  *kube.Writer
	kinds   map[object.GroupKind]followed
	todo    workqueue.TypedRateLimitingInterface[object.Ref]
	changed chan struct{} // receives after a Cluster changed
}

type followed struct {
	kind     kube.Kind
	informer cache.SharedIndexInformer
}

// follow queues an object that changed, and with a Cluster all objects that belong to it.
func (a *acknowledger) follow(gk object.GroupKind) cache.ResourceEventHandlerFuncs {
	seen := func(object any) {
		u := object.(*unstructured.Unstructured)
		a.todo.Add(refOf(gk, u))
		if gk != clusterKind {
			return
		}
		a.notify()
		for other, f := range a.kinds {
			for _, object := range f.informer.GetStore().List() {
				if o := object.(*unstructured.Unstructured); o.GetNamespace() == u.GetNamespace() &&
					clusterOf(o) == u.GetName() {
					a.todo.Add(refOf(other, o))
				}
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: seen,
		UpdateFunc: func(_, object any) { seen(object) },
		DeleteFunc: func(any) {
			if gk == clusterKind {
				a.notify()
			}
		}}
}

func (a *acknowledger) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
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

// acknowledge publishes on one object whether it is paused, by the rule of Cluster API: it has the
// annotation, or its Cluster has spec.paused.
func (a *acknowledger) acknowledge(ctx context.Context, r object.Ref) error {
	u := a.get(r)
	if u == nil {
		return nil
	}
	_, paused := u.GetAnnotations()[annotationPaused]
	cluster := u
	if name := clusterOf(u); r.GroupKind() != clusterKind {
		cluster = a.get(object.Ref{Group: clusterKind.Group, Kind: clusterKind.Kind,
			Namespace: r.Namespace, Name: name})
		if name != "" && cluster == nil {
			return nil // controllers do nothing with an object whose Cluster is gone
		}
	}
	if cluster != nil {
		all, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
		paused = paused || all
	}
	if !Publish(u, paused) {
		return nil
	}
	_, err := a.writer.UpdateStatus(ctx, a.kinds[r.GroupKind()].kind, u)
	return err
}

// clusterOf returns the name of the Cluster of an object: that of its label, or its owner.
func clusterOf(u *unstructured.Unstructured) string {
	if name := u.GetLabels()[labelCluster]; name != "" {
		return name
	}
	for _, o := range u.GetOwnerReferences() {
		if o.Kind == clusterKind.Kind {
			return o.Name
		}
	}
	return ""
}

// get copies an object from what the informers know.
func (a *acknowledger) get(r object.Ref) *unstructured.Unstructured {
	object, ok, err := a.kinds[r.GroupKind()].informer.GetStore().GetByKey(r.Namespace + "/" + r.Name)
	if err != nil || !ok {
		return nil
	}
	return object.(*unstructured.Unstructured).DeepCopy()
}

// Publish sets the conditions by which controllers report a pause. It reports whether they changed.
func Publish(u *unstructured.Unstructured, paused bool) bool {
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

// setCondition returns whether the condition changed. Its time changes with its status only.
func setCondition(u *unstructured.Unstructured, name, status, reason string) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	want := map[string]any{
		// Some providers require a message of at least one character.
		"type": name, "status": status, "message": reason, "reason": reason,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		"observedGeneration": u.GetGeneration(),
	}
	at := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == name })
	if at < 0 {
		conditions = append(conditions, want)
	} else {
		had := conditions[at].(map[string]any)
		if had["status"] == status && had["reason"] == reason &&
			had["observedGeneration"] == u.GetGeneration() {
			return false
		}
		if had["status"] == status {
			want["lastTransitionTime"] = had["lastTransitionTime"]
		}
		conditions[at] = want
	}
	_ = unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions")
	return true
}
