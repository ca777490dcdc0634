//go:build api

package service

import (
	"context"
	"slices"
	"strings"
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

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// twoClusters are the two management clusters of a test, with test doubles of their controllers.
// Several fixtures can share them.
type twoClusters struct {
	sides [2]*side
	stop  func()
}

// side is one management cluster, as tests read it.
type side struct {
	*kube.Mgmt
	client    dynamic.Interface
	kinds     []kube.Kind
	informers map[object.GroupKind]cache.SharedIndexInformer
	queue     workqueue.TypedRateLimitingInterface[item]

	mu      sync.Mutex
	ready   map[string]bool          // namespaces whose fleet is made
	changed map[string]chan struct{} // by namespace: gets a value when a Cluster changed
}

// item is an object in the queue of a controller.
type item struct {
	kind object.GroupKind
	key  string
}

// newTwoClusters connects to both management clusters and starts controllers on them until the test
// ends.
func newTwoClusters(t *testing.T) *twoClusters {
	t.Helper()
	g := &twoClusters{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	g.stop = func() {
		cancel()
		done.Wait()
	}
	t.Cleanup(g.stop)
	for i := range g.sides {
		s := &side{Mgmt: servers.Connect(t, i),
			informers: map[object.GroupKind]cache.SharedIndexInformer{},
			ready:     map[string]bool{}, changed: map[string]chan struct{}{}}
		g.sides[i] = s
		var err error
		if s.kinds, err = s.Reader().Kinds(t.Context()); err != nil {
			t.Fatal(err)
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", servers.Options(i).KubeconfigFile)
		if err != nil {
			t.Fatal(err)
		}
		cfg.QPS = -1
		if s.client, err = dynamic.NewForConfig(cfg); err != nil {
			t.Fatal(err)
		}
		s.control(ctx, &done)
	}
	return g
}

// publishers are the kinds whose controllers say by a condition whether they heed a pause.
var publishers = []string{"Cluster", "KubeadmControlPlane", "MachineDeployment", "MachineSet",
	"Machine", "MachinePool", "MachineHealthCheck", "KubeadmConfig", "DevCluster", "DevMachine",
	"DevMachinePool", "ClusterResourceSet"}

// control stands in for the controllers that bare servers lack: within milliseconds it publishes
// Paused on every object whose kind has that condition, and on Clusters with a class what the
// topology controller says of a pause. It changes nothing else.
func (s *side) control(ctx context.Context, done *sync.WaitGroup) {
	s.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[item](time.Millisecond, 100*time.Millisecond))
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.client, 0)
	for _, k := range s.kinds {
		if !slices.Contains(publishers, k.Kind) || !k.Status {
			continue
		}
		informer := factory.ForResource(resourceOf(k)).Informer()
		s.informers[k.GroupKind] = informer
		changed := func(obj any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if err != nil {
				return
			}
			s.queue.Add(item{k.GroupKind, key})
			if k.GroupKind == capi.Cluster {
				s.clusterChanged(key)
			}
		}
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed,
			UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed})
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range 4 {
		done.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	done.Go(func() {
		<-ctx.Done()
		s.queue.ShutDown()
		factory.Shutdown()
	})
}

func resourceOf(k kube.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// clusterChanged reads all objects of a Cluster, and wakes the watchers of its namespace.
func (s *side) clusterChanged(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	for gk, informer := range s.informers {
		if gk == capi.Cluster {
			continue
		}
		for _, obj := range informer.GetStore().List() {
			if u := obj.(*unstructured.Unstructured); u.GetNamespace() == namespace &&
				u.GetLabels()["cluster.x-k8s.io/cluster-name"] == name {
				s.queue.Add(item{gk, namespace + "/" + u.GetName()})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.changed[namespace] <- struct{}{}:
	default:
	}
}

// changes returns a channel that receives after Clusters in a namespace have changed.
func (s *side) changes(namespace string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	s.changed[namespace] = c
	return c
}

// begin lets the controllers work in a namespace. Before that they would be in the way of who makes
// the fleet.
func (s *side) begin(namespace string) {
	s.mu.Lock()
	s.ready[namespace] = true
	s.mu.Unlock()
	for gk, informer := range s.informers {
		for _, obj := range informer.GetStore().List() {
			if u := obj.(*unstructured.Unstructured); u.GetNamespace() == namespace {
				s.queue.Add(item{gk, namespace + "/" + u.GetName()})
			}
		}
	}
}

// next brings one object up to date.
func (s *side) next(ctx context.Context) bool {
	it, stop := s.queue.Get()
	if stop {
		return false
	}
	defer s.queue.Done(it)
	err := s.acknowledge(ctx, it)
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		s.queue.AddRateLimited(it)
		return true
	}
	s.queue.Forget(it)
	return true
}

func (s *side) acknowledge(ctx context.Context, it item) error {
	obj, ok, err := s.informers[it.kind].GetStore().GetByKey(it.key)
	if err != nil || !ok {
		return err
	}
	u := obj.(*unstructured.Unstructured).DeepCopy()
	s.mu.Lock()
	ready := s.ready[u.GetNamespace()]
	s.mu.Unlock()
	if !ready {
		return nil
	}
	cluster := u
	if it.kind != capi.Cluster {
		cluster = nil
		if name := u.GetLabels()["cluster.x-k8s.io/cluster-name"]; name != "" {
			obj, ok, err := s.informers[capi.Cluster].GetStore().GetByKey(u.GetNamespace() + "/" +
				name)
			if err != nil || !ok {
				return err // controllers do nothing with what has lost its Cluster
			}
			cluster = obj.(*unstructured.Unstructured)
		}
	}
	paused := isPaused(u) || cluster != nil && isPaused(cluster)
	changed := setCondition(u, "Paused", map[bool][2]string{true: {"True", "Paused"},
		false: {"False", "NotPaused"}}[paused])
	if _, classy, _ := unstructured.NestedMap(u.Object, "spec", "topology"); classy &&
		it.kind == capi.Cluster {
		changed = setCondition(u, "TopologyReconciled", map[bool][2]string{true: {"False", "Paused"},
			false: {"True", "ReconcileSucceeded"}}[paused]) || changed
	}
	if !changed {
		return nil
	}
	k, _ := kube.FindKind(s.kinds, it.kind)
	_, err = s.Writer().UpdateStatus(ctx, k, u)
	return err
}

// isPaused reports whether an object carries a switch that is set, as controllers read it.
func isPaused(u *unstructured.Unstructured) bool {
	_, annotated := u.GetAnnotations()[capi.AnnotationPaused]
	paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	return annotated || paused && u.GetKind() == "Cluster"
}

// setCondition reports whether anything had to be changed.
func setCondition(u *unstructured.Unstructured, name string, to [2]string) bool {
	want := map[string]any{
		"type": name, "status": to[0], "reason": to[1], "message": "",
		"observedGeneration": u.GetGeneration(), "lastTransitionTime": time.Now().UTC().Format(
			time.RFC3339),
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for i, c := range conditions {
		m, ok := c.(map[string]any)
		if !ok || m["type"] != name {
			continue
		}
		if m["status"] == to[0] && m["reason"] == to[1] && m["observedGeneration"] == u.GetGeneration() {
			return false
		}
		if m["status"] == to[0] {
			want["lastTransitionTime"] = m["lastTransitionTime"]
		}
		conditions[i] = want
		return unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions") == nil
	}
	return unstructured.SetNestedSlice(u.Object, append(conditions, want), "status",
		"conditions") == nil
}
