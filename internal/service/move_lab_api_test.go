//go:build api

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/mgmt/mgmttest"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

var servers *mgmttest.Servers

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		os.Exit(runOrder(text))
	}
	os.Exit(mgmttest.Main(m, 2, func(s *mgmttest.Servers) { servers = s }))
}

// orderVariable holds, in JSON, what a process that may die is to do. It is the test program itself, started anew.
const orderVariable = "MGMTD_TEST_MOVE_ORDER"

// What a process is asked to do.
const (
	doMove     = "move"
	doResume   = "resume"
	doDaemon   = "daemon" // start as the daemon does, which goes on by itself with what the one before it left
	doRollback = "rollback"
)

// order is what one process does.
type order struct {
	Dir   string          // keys, store and catalog
	Sides [2]mgmt.Options // the management clusters
	From  int             // the one to move from
	Spec  *mgmtv1.MoveSpec
	// Canary is the unit that is moved before all others.
	Canary string
	Do     string
	Kill   *kill
	Trace  string // file for what the process did
}

// Where in a step a process dies.
const (
	before = "before" // its record says begun, and its function has not run
	inside = "inside" // at a write
	after  = "after"  // its record says that it ended
	atKey  = "at-key" // not in a step: when a key is written to the store
)

// kill says when a process dies.
type kill struct {
	Point string
	Step  string // the key, with ns in place of the namespace
	Undo  bool   // of the way back
	Write int    // inside: the number of the write, of this step, from 1
	// Key is the beginning of the keys of the store at whose write a process dies, in any step.
	Key string
	// Answered: after the answer to the write, not before it was sent.
	Answered bool
}

func (k kill) String() string {
	text := k.Point
	if k.Point == inside || k.Point == atKey {
		text = map[bool]string{true: "after ", false: "before "}[k.Answered] + "write"
		if k.Write > 0 {
			text += fmt.Sprintf(" %d", k.Write)
		}
	}
	if k.Undo {
		text += " undoing"
	}
	return text + " of " + k.Step + k.Key
}

// traced is one step as a process went through it.
type traced struct {
	Step   string
	Undo   bool
	Writes int // to both sides
}

// end is how an operation ended, as its process tells on standard output.
type end struct {
	State, Message, Code string
	Findings             []string // those that are errors
}

// findings reads the errors in the history of an operation.
func findings(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) (texts []string, err error) {
	for e, err := range c.Watch(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		if f := e.Finding; f != nil && f.Severity == mgmt.Error.String() {
			texts = append(texts, fmt.Sprintf("%s %v: %s", f.Code, f.Ref, f.Message))
		}
	}
	return texts, nil
}

// runOrder is the main function of such a process.
func runOrder(text string) int {
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		var e end
		if e, err = carryOut(context.Background(), o, nil); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(e)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// newServer makes a server like a daemon's, with one storage location and two management clusters.
func newServer(o order) (*Server, error) {
	recipient, err := os.ReadFile(filepath.Join(o.Dir, "keys", "recipient.txt"))
	if err != nil {
		return nil, err
	}
	s := New(Config{
		CatalogFile: filepath.Join(o.Dir, "catalog.db"), Daemon: true, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Sources: o.Sides[:], Targets: o.Sides[:],
		Locations: []Location{{Name: "default", Default: true, Store: StoreOptions{
			URL: "file://" + filepath.Join(o.Dir, "store"), Recipients: []string{string(bytes.TrimSpace(recipient))},
			SigningKeyFile: filepath.Join(o.Dir, "keys", "signing.key"), TrustedKeyFiles: []string{filepath.Join(o.Dir, "keys", "signing.pub")},
		}}},
	})
	s.tuning = func(t *restore.Tuning) { t.Settle, t.Wait = 20*time.Millisecond, 30*time.Second }
	return s, nil
}

// carryOut does what an order says with a server of its own, and waits for the end of the operation. prepare, when set, changes the server before.
func carryOut(ctx context.Context, o order, prepare func(*Server)) (end, error) {
	s, err := newServer(o)
	if err != nil {
		return end{}, err
	}
	w := &witness{kill: o.Kill, namespace: o.Spec.GetSelection().GetNamespaces(), steps: map[string]*traced{}}
	if o.Trace != "" || o.Kill != nil {
		s.onStep = w.onStep
		s.writer = func(_ string, writer move.Writer) move.Writer { return &witnessed{Writer: writer, w: w} }
		s.buckets[&s.cfg.Locations[0]] = &witnessedBucket{Dir: store.NewDir(filepath.Join(o.Dir, "store")), w: w}
	}
	if prepare != nil {
		prepare(s)
	}
	e, err := s.carryOut(ctx, o)
	if err == nil && o.Trace != "" {
		err = w.write(o.Trace)
	}
	return e, errors.Join(err, s.Close())
}

func (s *Server) carryOut(ctx context.Context, o order) (end, error) {
	ref := latest
	var err error
	switch o.Do {
	case doMove:
		var r *mgmtv1.RunMoveResponse
		if r, err = (&moveService{s: s}).RunMove(ctx, &mgmtv1.RunMoveRequest{Spec: o.Spec, Tuning: &mgmtv1.RestoreTuning{Canary: o.Canary}}); err == nil {
			ref = r.GetOperation().GetId()
		}
	case doResume:
		_, err = (&operationService{s: s}).ResumeOperation(ctx, &mgmtv1.ResumeOperationRequest{Id: latest})
	case doRollback:
		_, err = (&operationService{s: s}).RollbackOperation(ctx, &mgmtv1.RollbackOperationRequest{Id: latest})
	case doDaemon:
		if err = s.Open(ctx); err == nil {
			err = s.Start(ctx)
		}
	}
	if err != nil {
		return end{}, err
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return end{}, err
	}
	for began := time.Now(); ; {
		op, err := findOperation(ctx, c, ref)
		if err != nil {
			return end{}, err
		}
		if op.State.Ended() && (o.Do != doDaemon || op.State != catalog.Stopped || time.Since(began) > 30*time.Second) {
			texts, err := findings(ctx, c, op.ID)
			return end{string(op.State), op.Message, op.Code, texts}, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// witness sees every step and every write of a process, and kills the process at one of them.
type witness struct {
	kill      *kill
	namespace []string

	mu    sync.Mutex
	steps map[string]*traced // by direction and key; gone again when they ended
	done  []traced
}

func (w *witness) write(file string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, err := json.Marshal(w.done)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// general replaces the namespace of the fleet, which is another one in each test, in the key of a step.
func (w *witness) general(step catalog.Step) string {
	for _, ns := range w.namespace {
		if rest, ok := strings.CutPrefix(step.String(), ns+"/"); ok {
			return "ns/" + rest
		}
	}
	return step.String()
}

func (w *witness) onStep(_ context.Context, r catalog.StepRecord) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	step, undo := w.general(r.Step), false
	switch r.State {
	case catalog.StepUndoing, catalog.StepUndone, catalog.StepUndoFailed:
		undo = true
	}
	at := before
	if r.State == catalog.StepBegun || r.State == catalog.StepUndoing {
		w.steps[step] = &traced{Step: step, Undo: undo}
	} else {
		at = after
		if t := w.steps[step]; t != nil {
			w.done = append(w.done, *t)
		}
		delete(w.steps, step)
	}
	if w.kill != nil && w.kill.Point == at && w.kill.Step == step && w.kill.Undo == undo {
		die()
	}
	return nil
}

// die ends the process as a power cut would: nothing of it runs any more, nothing is cleaned up.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// at wraps one write to a side. It counts for the step under way that writes objects of this name: all objects of a workload cluster of a fleet begin with its
// name.
func (w *witness) at(name string, write func() error) error {
	w.mu.Lock()
	number, t := 0, w.stepOf(name)
	if t != nil {
		t.Writes++
		number = t.Writes
	}
	hit := t != nil && w.kill != nil && w.kill.Point == inside && w.kill.Step == t.Step && w.kill.Undo == t.Undo && w.kill.Write == number
	if hit && !w.kill.Answered {
		die()
	}
	w.mu.Unlock()
	err := write()
	if hit {
		die()
	}
	return err
}

func (w *witness) stepOf(name string) *traced {
	unit := unitName(name)
	for key, t := range w.steps {
		step, err := catalog.ParseStep(key)
		if err != nil {
			continue
		}
		_, of, _ := strings.Cut(step.Unit, "/")
		ofUnit := strings.HasPrefix(of, unitPrefix)
		if ofUnit && of == unit || unit == "" && (!ofUnit || step.Phase == "owners") {
			return t
		}
	}
	return nil
}

// unitPrefix begins the names of workload clusters and their objects in a fleet.
const unitPrefix = "w-0"

// unitName gives the name of the workload cluster that an object belongs to by its name, "" for a shared one.
func unitName(name string) string {
	const length = len("w-00000")
	if strings.HasPrefix(name, unitPrefix) && len(name) >= length {
		return name[:length]
	}
	return ""
}

// witnessed is a Writer under the eyes of a witness.
type witnessed struct {
	move.Writer
	w *witness
}

func (d *witnessed) Create(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	err = d.w.at(obj.GetName(), func() (err error) { out, err = d.Writer.Create(ctx, k, obj); return err })
	return out, err
}

func (d *witnessed) Update(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	err = d.w.at(obj.GetName(), func() (err error) { out, err = d.Writer.Update(ctx, k, obj); return err })
	return out, err
}

func (d *witnessed) UpdateStatus(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	err = d.w.at(obj.GetName(), func() (err error) { out, err = d.Writer.UpdateStatus(ctx, k, obj); return err })
	return out, err
}

func (d *witnessed) PatchMetadata(ctx context.Context, k mgmt.Kind, namespace, name string, metadata map[string]any) (out *unstructured.Unstructured, err error) {
	err = d.w.at(name, func() (err error) { out, err = d.Writer.PatchMetadata(ctx, k, namespace, name, metadata); return err })
	return out, err
}

func (d *witnessed) Delete(ctx context.Context, k mgmt.Kind, namespace, name string, uid types.UID, resourceVersion string) error {
	return d.w.at(name, func() error { return d.Writer.Delete(ctx, k, namespace, name, uid, resourceVersion) })
}

// witnessedBucket is a store under the eyes of a witness: what is written there belongs to no object.
type witnessedBucket struct {
	*store.Dir
	w *witness
}

func (b *witnessedBucket) at(key string, write func() error) error {
	hit := b.w.kill != nil && b.w.kill.Point == atKey && strings.HasPrefix(key, b.w.kill.Key)
	if hit && !b.w.kill.Answered {
		die()
	}
	err := write()
	if hit {
		die()
	}
	return err
}

func (b *witnessedBucket) Put(ctx context.Context, key string, data []byte) error {
	return b.at(key, func() error { return b.Dir.Put(ctx, key, data) })
}

func (b *witnessedBucket) PutIf(ctx context.Context, key string, data []byte, tag string) (newTag string, err error) {
	err = b.at(key, func() (err error) { newTag, err = b.Dir.PutIf(ctx, key, data, tag); return err })
	return newTag, err
}

// ground is what the fleets of a test stand on: both management clusters with what stands in for their controllers.
type ground struct {
	sides [2]*side
	stop  func()
}

// side is one management cluster, as tests look at it.
type side struct {
	*mgmt.Mgmt
	client    dynamic.Interface
	kinds     []mgmt.Kind
	informers map[mgmt.GroupKind]cache.SharedIndexInformer
	queue     workqueue.TypedRateLimitingInterface[item]

	mu    sync.Mutex
	ready map[string]bool          // namespaces whose fleet is made
	tells map[string]chan struct{} // by namespace: whom to tell of changed Clusters
}

// item is an object that a controller looks at.
type item struct {
	kind mgmt.GroupKind
	key  string
}

// newGround connects to both management clusters and starts controllers on them until the test ends.
func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	g.stop = func() {
		cancel()
		done.Wait()
	}
	t.Cleanup(g.stop)
	for i := range g.sides {
		s := &side{Mgmt: servers.Connect(t, i), informers: map[mgmt.GroupKind]cache.SharedIndexInformer{}, ready: map[string]bool{}, tells: map[string]chan struct{}{}}
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
var publishers = []string{"Cluster", "KubeadmControlPlane", "MachineDeployment", "MachineSet", "Machine", "MachinePool", "MachineHealthCheck", "KubeadmConfig", "DevCluster", "DevMachine", "DevMachinePool", "ClusterResourceSet"}

// control stands in for the controllers that bare servers lack: within milliseconds it publishes Paused on every object whose kind has that condition, and on
// Clusters with a class what the topology controller says of a pause. It changes nothing else.
func (s *side) control(ctx context.Context, done *sync.WaitGroup) {
	s.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](time.Millisecond, 100*time.Millisecond))
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
			if k.GroupKind == snapshot.ClusterKind {
				s.clusterChanged(key)
			}
		}
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed})
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

func resourceOf(k mgmt.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// clusterChanged looks at all objects of a Cluster, and wakes up who watches its namespace.
func (s *side) clusterChanged(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	for gk, informer := range s.informers {
		if gk == snapshot.ClusterKind {
			continue
		}
		for _, obj := range informer.GetStore().List() {
			if u := obj.(*unstructured.Unstructured); u.GetNamespace() == namespace && u.GetLabels()["cluster.x-k8s.io/cluster-name"] == name {
				s.queue.Add(item{gk, namespace + "/" + u.GetName()})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.tells[namespace] <- struct{}{}:
	default:
	}
}

// tell returns a channel on which something comes after Clusters in a namespace have changed.
func (s *side) tell(namespace string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	s.tells[namespace] = c
	return c
}

// begin lets the controllers work in a namespace. Before that they would be in the way of who makes the fleet.
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
	if it.kind != snapshot.ClusterKind {
		cluster = nil
		if name := u.GetLabels()["cluster.x-k8s.io/cluster-name"]; name != "" {
			obj, ok, err := s.informers[snapshot.ClusterKind].GetStore().GetByKey(u.GetNamespace() + "/" + name)
			if err != nil || !ok {
				return err // controllers do nothing with what has lost its Cluster
			}
			cluster = obj.(*unstructured.Unstructured)
		}
	}
	paused := isPaused(u) || cluster != nil && isPaused(cluster)
	changed := setCondition(u, "Paused", map[bool][2]string{true: {"True", "Paused"}, false: {"False", "NotPaused"}}[paused])
	if _, classy, _ := unstructured.NestedMap(u.Object, "spec", "topology"); classy && it.kind == snapshot.ClusterKind {
		changed = setCondition(u, "TopologyReconciled", map[bool][2]string{true: {"False", "Paused"}, false: {"True", "ReconcileSucceeded"}}[paused]) || changed
	}
	if !changed {
		return nil
	}
	k, _ := mgmt.FindKind(s.kinds, it.kind)
	_, err = s.Writer().UpdateStatus(ctx, k, u)
	return err
}

// isPaused tells whether an object carries a switch that is set, as controllers read it.
func isPaused(u *unstructured.Unstructured) bool {
	_, annotated := u.GetAnnotations()[snapshot.AnnotationPaused]
	paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	return annotated || paused && u.GetKind() == "Cluster"
}

// setCondition reports whether anything had to be changed.
func setCondition(u *unstructured.Unstructured, name string, to [2]string) bool {
	want := map[string]any{
		"type": name, "status": to[0], "reason": to[1], "message": "", "observedGeneration": u.GetGeneration(), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
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
	return unstructured.SetNestedSlice(u.Object, append(conditions, want), "status", "conditions") == nil
}

// yard is a fleet in a namespace of its own, which moves to and fro, with a store and a catalog of its own.
type yard struct {
	*ground
	t         testing.TB
	dir       string
	namespace string
	at        int // the side on which the fleet is
	store     *store.Store
	noFence   bool // moves write no ownership records
	// was is the fleet as it stood before the present move, by ref, and without the namespace.
	was map[mgmt.Ref]*unstructured.Unstructured

	mu         sync.Mutex
	violations []string
}

const fleetClusters = 4 // the first of them is taken away again: then three are left, two with the same class

// newYard makes a fleet of three workload clusters on the first side: two share a ClusterClass and own a Secret together, the third is paused. Only one of them has
// workers: every object costs time in every state.
func newYard(t testing.TB, g *ground, prefix string) *yard {
	t.Helper()
	y := &yard{ground: g, t: t, dir: t.TempDir(), namespace: prefix + "-team-0000"}
	servers.Fleet(t, 0, "--namespace-prefix", prefix+"-", "--workloads", fmt.Sprint(fleetClusters), "--machines", "1", "--fast")
	for _, s := range g.sides {
		s.begin(y.namespace)
	}
	if _, err := store.Keygen(filepath.Join(y.dir, "keys"), time.Now()); err != nil {
		t.Fatal(err)
	}
	must(t, y.openStore())
	y.remove(0, func(name string) bool {
		return unitName(name) == unitPrefix+"0000" || strings.Contains(name, "-md-0") && unitName(name) != classyUnits[0]
	})
	y.change(0, clusterRef(y.namespace, pausedUnit), func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
	})
	var owners []any
	for _, unit := range classyUnits {
		u := y.get(0, clusterRef(y.namespace, unit))
		owners = append(owners, map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "name": u.GetName(), "uid": string(u.GetUID())})
	}
	y.change(0, mgmt.Ref{Kind: "Secret", Namespace: y.namespace, Name: "registry-credentials"}, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedSlice(u.Object, owners, "metadata", "ownerReferences")
	})
	must(t, y.rest())
	return y
}

const pausedUnit = "w-00002"

var (
	classyUnits = []string{"w-00001", "w-00003"}
	allUnits    = []string{"w-00001", "w-00002", "w-00003"}
)

func clusterRef(namespace, name string) mgmt.Ref {
	return mgmt.Ref{Group: snapshot.ClusterKind.Group, Kind: snapshot.ClusterKind.Kind, Namespace: namespace, Name: name}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (y *yard) openStore() error {
	recipient, err := os.ReadFile(filepath.Join(y.dir, "keys", "recipient.txt"))
	if err != nil {
		return err
	}
	keys, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{string(bytes.TrimSpace(recipient))}, SigningKeyFile: filepath.Join(y.dir, "keys", "signing.key"), TrustedKeyFiles: []string{filepath.Join(y.dir, "keys", "signing.pub")},
	})
	if err != nil {
		return err
	}
	y.store, err = store.Open(y.t.Context(), store.Options{Bucket: store.NewDir(filepath.Join(y.dir, "store")), Keys: keys, Create: true})
	return err
}

func (y *yard) source() *side { return y.sides[y.at] }
func (y *yard) target() *side { return y.sides[1-y.at] }

// tryLive reads all objects in the fleet's namespace on one side.
func (y *yard) tryLive(ctx context.Context, i int) (map[mgmt.Ref]*unstructured.Unstructured, error) {
	out := map[mgmt.Ref]*unstructured.Unstructured{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(4)
	for _, k := range y.sides[i].kinds {
		if !k.Namespaced {
			continue
		}
		g.Go(func() error {
			_, err := y.sides[i].Reader().List(ctx, k, mgmt.ListOptions{Namespace: y.namespace}, func(raw []byte) error {
				u := &unstructured.Unstructured{}
				if err := u.UnmarshalJSON(raw); err != nil {
					return err
				}
				if u.GetName() == "kube-root-ca.crt" {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				out[mgmt.Ref{Group: k.Group, Kind: k.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}] = u
				return nil
			})
			return err
		})
	}
	return out, g.Wait()
}

func (y *yard) live(i int) map[mgmt.Ref]*unstructured.Unstructured {
	y.t.Helper()
	out, err := y.tryLive(y.t.Context(), i)
	must(y.t, err)
	return out
}

func (y *yard) kind(i int, gk mgmt.GroupKind) mgmt.Kind {
	k, ok := mgmt.FindKind(y.sides[i].kinds, gk)
	if !ok {
		y.t.Fatalf("%s is not served", gk)
	}
	return k
}

func (y *yard) get(i int, ref mgmt.Ref) *unstructured.Unstructured {
	y.t.Helper()
	u, err := y.sides[i].Reader().Get(y.t.Context(), y.kind(i, ref.GroupKind()), ref.Namespace, ref.Name)
	must(y.t, err)
	return u
}

// change writes to an object of a side, as a user would.
func (y *yard) change(i int, ref mgmt.Ref, fn func(u *unstructured.Unstructured)) {
	y.t.Helper()
	must(y.t, y.tryChange(i, ref, fn))
}

func (y *yard) tryChange(i int, ref mgmt.Ref, fn func(u *unstructured.Unstructured)) error {
	for {
		k := y.kind(i, ref.GroupKind())
		u, err := y.sides[i].Reader().Get(context.Background(), k, ref.Namespace, ref.Name)
		if err == nil {
			fn(u)
			_, err = y.sides[i].Writer().Update(context.Background(), k, u)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// remove takes objects away, by their names, as if they had never been.
func (y *yard) remove(i int, which func(name string) bool) {
	y.t.Helper()
	for left := 1; left > 0; {
		left = 0
		for ref, u := range y.live(i) {
			if !which(ref.Name) {
				continue
			}
			left++
			err := y.tryChange(i, ref, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
			if err == nil {
				err = y.sides[i].Writer().Delete(y.t.Context(), y.kind(i, ref.GroupKind()), ref.Namespace, ref.Name, u.GetUID(), "")
			}
			if err != nil && !apierrors.IsNotFound(err) {
				y.t.Fatalf("remove %s: %v", ref, err)
			}
		}
	}
}

// rest waits until the controllers of the source have nothing more to say, and remembers the fleet as it stands.
func (y *yard) rest() error {
	for {
		first, err := y.tryLive(y.t.Context(), y.at)
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		second, err := y.tryLive(y.t.Context(), y.at)
		if err != nil {
			return err
		}
		if maps.EqualFunc(first, second, func(a, b *unstructured.Unstructured) bool { return a.GetResourceVersion() == b.GetResourceVersion() }) {
			y.was = second
			return nil
		}
	}
}

func (y *yard) order(do string) order {
	return order{
		Dir: y.dir, Sides: [2]mgmt.Options{servers.Options(0), servers.Options(1)}, From: y.at, Do: do,
		Spec: &mgmtv1.MoveSpec{Source: y.source().Name(), Target: y.target().Name(), NoFence: y.noFence, Selection: &mgmtv1.Selection{Namespaces: []string{y.namespace}}},
	}
}

// errNotKilled is what run says of a process that came to its end although it was to die.
var errNotKilled = errors.New("it did not come to the point where it was to die")

// run carries out an order in a process of its own. For one that was to die its error is nil when it did.
func (y *yard) run(o order) (end, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return end{}, err
	}
	ctx, cancel := context.WithTimeout(y.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if ctx.Err() != nil {
		return end{}, fmt.Errorf("%s: no end after minutes: %s", o.Do, tail(&errs))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && o.Kill != nil {
		if status, isWait := exit.Sys().(syscall.WaitStatus); isWait && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return end{}, nil
		}
	}
	if err != nil {
		return end{}, fmt.Errorf("%s: %w\n%s", o.Do, err, tail(&errs))
	}
	var e end
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		return end{}, fmt.Errorf("%s: %w in %q\n%s", o.Do, err, out.String(), tail(&errs))
	}
	if o.Kill != nil {
		return e, errNotKilled
	}
	return e, nil
}

func tail(r io.Reader) string {
	text, _ := io.ReadAll(r)
	return string(text[max(0, len(text)-2000):])
}

// workloadID is under which the ownership record of a workload cluster stands.
func (y *yard) workloadID(unit string) string {
	u := y.was[clusterRef(y.namespace, unit)]
	if id := u.GetAnnotations()[snapshot.AnnotationWorkloadID]; id != "" {
		return id
	}
	return string(u.GetUID())
}

// handedOver tells which units belong to the target by their ownership records.
func (y *yard) handedOver(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for _, unit := range allUnits {
		o, err := y.store.GetOwner(ctx, y.workloadID(unit))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		out[unit] = err == nil && o.Owner.Owner.UID == y.target().UID()
	}
	return out, nil
}

// reconciled tells for Clusters of one side whether controllers work on them, with their resourceVersions.
func (y *yard) reconciled(ctx context.Context, i int) (map[string]string, error) {
	out := map[string]string{}
	k, _ := mgmt.FindKind(y.sides[i].kinds, snapshot.ClusterKind)
	_, err := y.sides[i].Reader().List(ctx, k, mgmt.ListOptions{Namespace: y.namespace}, func(raw []byte) error {
		annotated := gjson.GetBytes(raw, "metadata.annotations").Map()[snapshot.AnnotationPaused].Exists()
		if !annotated && !gjson.GetBytes(raw, "spec.paused").Bool() {
			out[gjson.GetBytes(raw, "metadata.name").String()] = gjson.GetBytes(raw, "metadata.uid").String() + "/" + gjson.GetBytes(raw, "metadata.resourceVersion").String()
		}
		return nil
	})
	return out, err
}

// observe looks for a moment in which invariant I1 does not hold. It sees only what it can prove: a Cluster of the source that was at work, in one and the same
// version, before and after the target was read, was at work then; and a record that was read before, or after, a Cluster, named the target by then, or not yet.
func (y *yard) observe(ctx context.Context) error {
	first, err := y.reconciled(ctx, y.at)
	if err != nil {
		return err
	}
	target, err := y.reconciled(ctx, 1-y.at)
	if err != nil {
		return err
	}
	handed, err := y.handedOver(ctx)
	if err != nil {
		return err
	}
	second, err := y.reconciled(ctx, y.at)
	if err != nil {
		return err
	}
	for _, unit := range allUnits {
		_, onTarget := target[unit]
		_, onSource := second[unit]
		switch {
		case unit == pausedUnit && (onTarget || onSource || first[unit] != ""):
			y.violated("%s was paused before and is not now", unit)
		case onTarget && onSource && first[unit] == second[unit]:
			y.violated("%s is at work on both sides", unit)
		case onTarget && !handed[unit] && !y.noFence:
			y.violated("%s is at work on the target, which no ownership record names", unit)
		case onSource && handed[unit]:
			y.violated("%s is at work on the source, and the ownership record names the target", unit)
		}
	}
	return nil
}

func (y *yard) violated(format string, a ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	text := "I1: " + fmt.Sprintf(format, a...)
	if !slices.Contains(y.violations, text) {
		y.violations = append(y.violations, text)
	}
}

// watch observes until stop is called, which tells what was seen.
func (y *yard) watch() (stop func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	first, second := y.sides[0].tell(y.namespace), y.sides[1].tell(y.namespace)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if err := y.observe(ctx); err != nil && ctx.Err() == nil {
				y.violated("observe: %v", err)
			}
			select {
			case <-first:
			case <-second:
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	return func() []string {
		cancel()
		done.Wait()
		y.mu.Lock()
		defer y.mu.Unlock()
		seen := y.violations
		y.violations = nil
		return seen
	}
}

// moveState is what both sides and the store hold at one moment.
type moveState struct {
	source, target map[mgmt.Ref]*unstructured.Unstructured
	namespaces     [2]*unstructured.Unstructured // by side; nil where there is none
	handed         map[string]bool
}

func (y *yard) look() (st moveState, err error) {
	ctx := y.t.Context()
	if st.source, err = y.tryLive(ctx, y.at); err != nil {
		return st, err
	}
	if st.target, err = y.tryLive(ctx, 1-y.at); err != nil {
		return st, err
	}
	for i, s := range y.sides {
		st.namespaces[i], err = s.Reader().Get(ctx, mgmt.NamespaceKind, "", y.namespace)
		if err != nil && !apierrors.IsNotFound(err) {
			return st, err
		}
	}
	st.handed, err = y.handedOver(ctx)
	return st, err
}

// removeNamespace takes the empty namespace on the target away, so that a move has to make it.
func (y *yard) removeNamespace() error {
	for deadline := time.Now().Add(time.Minute); ; {
		ns, err := y.target().Reader().Get(y.t.Context(), mgmt.NamespaceKind, "", y.namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && ns.GetDeletionTimestamp() == nil {
			err = y.target().Writer().Delete(y.t.Context(), mgmt.NamespaceKind, "", y.namespace, ns.GetUID(), "")
		}
		if err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("the namespace on the target does not go")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// checkNamespaces asserts that nothing of an operation is left on the namespaces, which stay on either side.
func checkNamespaces(st moveState) (problems []string) {
	for i, ns := range st.namespaces {
		if ns == nil {
			continue
		}
		for _, a := range ours {
			if v, left := ns.GetAnnotations()[a]; left {
				problems = append(problems, fmt.Sprintf("the namespace on mgmt-%d still has %s=%s", i+1, a, v))
			}
		}
	}
	return problems
}

// checkCrashed asserts invariants I1 and I2 in the state that a dead process left.
func (y *yard) checkCrashed(st moveState, began time.Time) (problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	for _, unit := range allUnits {
		ref := clusterRef(y.namespace, unit)
		source, target := st.source[ref], st.target[ref]
		onSource, onTarget := source != nil && !isPaused(source), target != nil && !isPaused(target)
		switch {
		case unit == pausedUnit:
			if onSource || onTarget {
				add("I1: %s was paused before and is not now", unit)
			}
		case onSource && onTarget:
			add("I1: %s is at work on both sides", unit)
		case onTarget && !st.handed[unit] && !y.noFence:
			add("I1: %s is at work on the target, which no ownership record names", unit)
		case onSource && st.handed[unit]:
			add("I1: %s is at work on the source, and the ownership record names the target", unit)
		}
	}
	released := func(unit string) bool {
		target := st.target[clusterRef(y.namespace, unit)]
		return target != nil && !restore.PausedByUs(target)
	}
	gone := 0
	for ref, was := range y.was {
		if st.source[ref] != nil {
			continue
		}
		gone++
		target := st.target[ref]
		if target == nil {
			add("I2: %s is on neither side", ref)
			continue
		}
		if paths := snapshot.Differences(was.Object, target.Object, snapshot.All); len(paths) > 0 {
			add("I2: %s is gone from the source, and on the target it differs in %v", ref, paths)
		}
		units := []string{unitName(ref.Name)}
		if units[0] == "" {
			units = allUnits // shared
		}
		for _, unit := range units {
			if !released(unit) {
				add("I2: %s is gone from the source, and %s is not released on the target", ref, unit)
			}
		}
	}
	if gone > 0 {
		if err := y.checkSnapshot(began); err != nil {
			add("I2: %d objects are gone from the source: %v", gone, err)
		}
	}
	return problems
}

// checkSnapshot asserts that the store has a whole snapshot of the source that is newer than the begin of the run.
func (y *yard) checkSnapshot(began time.Time) error {
	keys, err := y.store.Snapshots(y.t.Context(), y.source().UID())
	if err != nil {
		return err
	}
	if len(keys) == 0 || keys[len(keys)-1].Time.Before(began.Truncate(time.Millisecond)) {
		return errors.New("there is no snapshot that is newer than the run")
	}
	e, err := y.store.GetEnvelope(y.t.Context(), keys[len(keys)-1])
	if err != nil {
		return err
	}
	report, err := y.store.VerifyStructure(y.t.Context(), e.Envelope, nil)
	if err == nil && len(report.Findings) > 0 {
		err = fmt.Errorf("snapshot %s: %v", e.ID, report.Findings)
	}
	return err
}

// ours are the annotations of which nothing may be left when an operation is over.
var ours = []string{snapshot.AnnotationOperation, snapshot.AnnotationWasPaused, restore.AnnotationDeleteForMove}

// checkFleet asserts that one side has the whole fleet, and nothing that it had not before.
func (y *yard) checkFleet(live map[mgmt.Ref]*unstructured.Unstructured) (problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	uids := map[types.UID]bool{}
	for _, u := range live {
		uids[u.GetUID()] = true
	}
	for ref, was := range y.was {
		u := live[ref]
		if u == nil {
			add("%s is not there", ref)
			continue
		}
		if paths := snapshot.Differences(was.Object, u.Object, snapshot.All); len(paths) > 0 {
			add("%s differs in %v", ref, paths)
		}
		if isPaused(u) != isPaused(was) {
			add("%s: paused is %v, and was %v", ref, isPaused(u), isPaused(was))
		}
		if _, set, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "paused"); set && !isPaused(was) && ref.GroupKind() == snapshot.ClusterKind {
			add("%s has spec.paused, which it had not", ref)
		}
		for _, o := range u.GetOwnerReferences() {
			if !uids[o.UID] {
				add("%s: its owner %s/%s has a UID that does not live", ref, o.Kind, o.Name)
			}
		}
		for _, a := range ours {
			if v, left := u.GetAnnotations()[a]; left {
				add("%s still has %s=%s", ref, a, v)
			}
		}
		if u.GetDeletionTimestamp() != nil {
			add("%s is being deleted", ref)
		}
	}
	for ref := range live {
		if y.was[ref] == nil {
			add("%s is new", ref)
		}
	}
	return problems
}

// checkMoved asserts that the whole fleet is on the target and nothing of it on the source.
func (y *yard) checkMoved(st moveState) (problems []string) {
	problems = append(y.checkFleet(st.target), checkNamespaces(st)...)
	for ref := range st.source {
		problems = append(problems, fmt.Sprintf("%s is still on the source", ref))
	}
	for unit, handed := range st.handed {
		if !handed && !y.noFence {
			problems = append(problems, "the ownership record of "+unit+" does not name the target")
		}
	}
	return problems
}

// checkBack asserts that the source is exactly what it was, and that nothing is left on the target.
func (y *yard) checkBack(st moveState) (problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	problems = append(y.checkFleet(st.source), checkNamespaces(st)...)
	for ref, was := range y.was {
		u := st.source[ref]
		if u == nil {
			continue
		}
		if u.GetUID() != was.GetUID() {
			add("%s was made anew", ref)
		}
		for _, path := range [][]string{{"metadata", "annotations"}, {"metadata", "labels"}, {"metadata", "finalizers"}, {"metadata", "ownerReferences"}, {"spec"}, {"data"}} {
			is, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
			should, _, _ := unstructured.NestedFieldNoCopy(was.Object, path...)
			if a, b := encode(is), encode(should); a != b {
				add("%s: %s is not exactly what it was", ref, strings.Join(path, "."))
			}
		}
	}
	for ref := range st.target {
		add("%s is left on the target", ref)
	}
	for unit, handed := range st.handed {
		if handed {
			add("the ownership record of %s names the target", unit)
		}
	}
	return problems
}

func encode(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
