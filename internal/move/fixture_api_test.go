//go:build api

package move_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/task"
)

// side is one management cluster, as tests read it.
type side struct {
	*kube.Mgmt
	kinds   []kube.Kind
	changed <-chan struct{} // receives after a Cluster of the fleet's namespace changed
}

// fixture is a fleet in its own namespace, which moves between two management clusters, with its
// own store and catalog.
type fixture struct {
	sides     [2]*side
	t         testing.TB
	dir       string
	namespace string
	at        int // the side on which the fleet is
	store     *store.Store
	noFence   bool // moves write no ownership records
	// hosts is how many hosts were lost with their catalogs: the number of the present one.
	hosts int
	// was is the fleet before the present move, by ref, and without the namespace.
	was map[object.Ref]*unstructured.Unstructured

	limit time.Duration // of a process; 0 means minutes

	mu         sync.Mutex
	violations []string
}

// fleetClusters is the size of a new fleet. A fixture removes the first workload cluster: of the
// three others, two have the same class.
const fleetClusters = 4

// newFixture makes a fleet of three workload clusters on the first side: two share a
// ClusterClass and own a Secret together, the third is paused. Only one of them has workers: every
// object costs time in every state.
func newFixture(t testing.TB, prefix string) *fixture {
	t.Helper()
	fx := &fixture{t: t, dir: t.TempDir(), namespace: prefix + "-team-0000"}
	servers.Fleet(t, 0, "--namespace-prefix", prefix+"-", "--workloads", fmt.Sprint(fleetClusters),
		"--machines", "1", "--fast")
	for i := range fx.sides {
		s := &side{Mgmt: servers.Connect(t, i), changed: servers.AcknowledgeIn(t, i, fx.namespace)}
		var err error
		s.kinds, err = s.Reader().Kinds(t.Context())
		must(t, err)
		fx.sides[i] = s
	}
	fx.makeStore()
	fx.remove(0, func(name string) bool {
		return unitName(name) == unitPrefix+"0000" || strings.Contains(name, "-md-0") &&
			unitName(name) != classyUnits[0]
	})
	fx.change(0, clusterRef(fx.namespace, pausedUnit), func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
	})
	var owners []any
	for _, unit := range classyUnits {
		u := fx.get(0, clusterRef(fx.namespace, unit))
		owners = append(owners, map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(),
			"name": u.GetName(), "uid": string(u.GetUID())})
	}
	fx.change(0, object.Ref{Kind: "Secret", Namespace: fx.namespace, Name: "registry-credentials"},
		func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedSlice(u.Object, owners, "metadata", "ownerReferences")
		})
	must(t, fx.awaitQuiet())
	return fx
}

// makeStore makes keys and a store.
func (fx *fixture) makeStore() {
	fx.t.Helper()
	_, err := store.Keygen(filepath.Join(fx.dir, "keys"), time.Now())
	must(fx.t, err)
	fx.store, err = openStore(fx.t.Context(), fx.dir, directory.New(filepath.Join(fx.dir, "store")),
		true, true)
	must(fx.t, err)
}

const pausedUnit = "w-00002"

var (
	classyUnits = []string{"w-00001", "w-00003"}
	allUnits    = []string{"w-00001", "w-00002", "w-00003"}
)

func clusterRef(namespace, name string) object.Ref {
	return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: namespace, Name: name}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (fx *fixture) source() *side { return fx.sides[fx.at] }
func (fx *fixture) target() *side { return fx.sides[1-fx.at] }

// tryLive reads all objects in the fleet's namespace on one side.
func (fx *fixture) tryLive(ctx context.Context,
	i int) (map[object.Ref]*unstructured.Unstructured,
	error) {
	out := map[object.Ref]*unstructured.Unstructured{}
	var mu sync.Mutex
	var g task.Group
	g.SetLimit(4)
	for _, k := range fx.sides[i].kinds {
		if !k.Namespaced {
			continue
		}
		g.Go(func() error {
			_, err := fx.sides[i].Reader().List(ctx, k, kube.ListOptions{Namespace: fx.namespace},
				func(raw []byte) error {
					u := &unstructured.Unstructured{}
					if err := u.UnmarshalJSON(raw); err != nil {
						return err
					}
					if u.GetName() == "kube-root-ca.crt" {
						return nil
					}
					mu.Lock()
					defer mu.Unlock()
					out[object.Ref{Group: k.Group, Kind: k.Kind, Namespace: u.GetNamespace(),
						Name: u.GetName()}] = u
					return nil
				})
			return err
		})
	}
	return out, g.Wait()
}

func (fx *fixture) live(i int) map[object.Ref]*unstructured.Unstructured {
	fx.t.Helper()
	out, err := fx.tryLive(fx.t.Context(), i)
	must(fx.t, err)
	return out
}

func (fx *fixture) kind(i int, gk object.GroupKind) kube.Kind {
	k, ok := kube.FindKind(fx.sides[i].kinds, gk)
	if !ok {
		fx.t.Fatalf("%s is not served", gk)
	}
	return k
}

func (fx *fixture) get(i int, ref object.Ref) *unstructured.Unstructured {
	fx.t.Helper()
	u, err := fx.sides[i].Reader().Get(fx.t.Context(), fx.kind(i, ref.GroupKind()), ref.Namespace,
		ref.Name)
	must(fx.t, err)
	return u
}

// change writes to an object of a side, as a user would.
func (fx *fixture) change(i int, ref object.Ref, fn func(u *unstructured.Unstructured)) {
	fx.t.Helper()
	must(fx.t, fx.tryChange(i, ref, fn))
}

func (fx *fixture) tryChange(i int, ref object.Ref,
	fn func(u *unstructured.Unstructured)) error {
	for {
		k := fx.kind(i, ref.GroupKind())
		u, err := fx.sides[i].Reader().Get(context.Background(), k, ref.Namespace, ref.Name)
		if err == nil {
			fn(u)
			_, err = fx.sides[i].Writer().Update(context.Background(), k, u)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// remove removes objects by their names, with all finalizers.
func (fx *fixture) remove(i int, which func(name string) bool) {
	fx.t.Helper()
	for left := 1; left > 0; {
		left = 0
		for ref, u := range fx.live(i) {
			if !which(ref.Name) {
				continue
			}
			left++
			err := fx.tryChange(i, ref, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
			if err == nil {
				err = fx.sides[i].Writer().Delete(fx.t.Context(), fx.kind(i, ref.GroupKind()), ref.Namespace,
					ref.Name, u.GetUID(), "")
			}
			if err != nil && !apierrors.IsNotFound(err) {
				fx.t.Fatalf("remove %s: %v", ref, err)
			}
		}
	}
}

// awaitQuiet waits until the controllers of the source write nothing more, and stores the state of
// the fleet in was.
func (fx *fixture) awaitQuiet() error {
	for {
		first, err := fx.tryLive(fx.t.Context(), fx.at)
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		second, err := fx.tryLive(fx.t.Context(), fx.at)
		if err != nil {
			return err
		}
		if maps.EqualFunc(first, second, func(a, b *unstructured.Unstructured) bool {
			return a.GetResourceVersion() == b.GetResourceVersion()
		}) {
			fx.was = second
			return nil
		}
	}
}

func (fx *fixture) order(do string) order {
	return order{
		Dir: fx.dir, Sides: [2]kube.Options{servers.Options(0), servers.Options(1)}, From: fx.at, Do: do,
		Catalog: fmt.Sprintf("catalog-%d.db", fx.hosts), Host: fmt.Sprintf("host-%d", fx.hosts),
		Away: object.Side{Name: fx.target().Name(), UID: fx.target().UID()},
		Spec: move.Spec{NoFence: fx.noFence,
			Selection: restore.Selection{Namespaces: []string{fx.namespace}}},
	}
}

// elsewhere is an order for another host, which has the store and its keys only.
func (fx *fixture) elsewhere(do string) order {
	fx.hosts++
	o := fx.order(do)
	o.Import = true
	return o
}

// errNotKilled means that a process ended before it reached the point at which it was to die.
var errNotKilled = errors.New("it did not come to the point where it was to die")

// run carries out an order in a process of its own. For an order to die, the error is nil if the
// process was killed, and errNotKilled if it ended by itself.
func (fx *fixture) run(o order) (end, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return end{}, err
	}
	ctx, cancel := context.WithTimeout(fx.t.Context(), cmp.Or(fx.limit, 3*time.Minute))
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
		if status, isWait := exit.Sys().(syscall.WaitStatus); isWait && status.Signaled() &&
			status.Signal() == syscall.SIGKILL {
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

// workloadID returns the ID under which the ownership record of a workload cluster is stored.
func (fx *fixture) workloadID(unit string) string {
	u := fx.was[clusterRef(fx.namespace, unit)]
	if id := u.GetAnnotations()[capi.AnnotationWorkloadID]; id != "" {
		return id
	}
	return string(u.GetUID())
}

// handedOver returns the units that belong to the target by their ownership records.
func (fx *fixture) handedOver(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for _, unit := range allUnits {
		o, err := fx.store.GetOwner(ctx, fx.workloadID(unit))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		out[unit] = err == nil && o.Owner.Owner.UID == fx.target().UID()
	}
	return out, nil
}

// reconciled reports for Clusters of one side whether controllers work on them, with their
// resourceVersions.
func (fx *fixture) reconciled(ctx context.Context, i int) (map[string]string, error) {
	out := map[string]string{}
	k, _ := kube.FindKind(fx.sides[i].kinds, capi.Cluster)
	_, err := fx.sides[i].Reader().List(ctx, k, kube.ListOptions{Namespace: fx.namespace},
		func(raw []byte) error {
			annotated := gjson.GetBytes(raw,
				"metadata.annotations").Map()[capi.AnnotationPaused].Exists()
			if !annotated && !gjson.GetBytes(raw, "spec.paused").Bool() {
				out[gjson.GetBytes(raw, "metadata.name").String()] = gjson.GetBytes(raw,
					"metadata.uid").String() + "/" + gjson.GetBytes(raw, "metadata.resourceVersion").String()
			}
			return nil
		})
	return out, err
}

// observe reports a moment in which invariant I1 does not hold. It reports only what it can prove.
// A Cluster of the source that was reconciled in the same version before and after the target was
// read was reconciled at that moment, too. Records are read after the target and before the source
// is read again: a record that names the target then still does so afterwards, and one that does
// not, did not before.
func (fx *fixture) observe(ctx context.Context) error {
	first, err := fx.reconciled(ctx, fx.at)
	if err != nil {
		return err
	}
	target, err := fx.reconciled(ctx, 1-fx.at)
	if err != nil {
		return err
	}
	handed, err := fx.handedOver(ctx)
	if err != nil {
		return err
	}
	second, err := fx.reconciled(ctx, fx.at)
	if err != nil {
		return err
	}
	for _, unit := range allUnits {
		_, onTarget := target[unit]
		_, onSource := second[unit]
		switch {
		case unit == pausedUnit && (onTarget || onSource || first[unit] != ""):
			fx.violated("%s was paused before and is not now", unit)
		case onTarget && onSource && first[unit] == second[unit]:
			fx.violated("%s is at work on both sides", unit)
		case onTarget && !handed[unit] && !fx.noFence:
			fx.violated("%s is at work on the target, which no ownership record names", unit)
		case onSource && handed[unit]:
			fx.violated("%s is at work on the source, and the ownership record names the target", unit)
		}
	}
	return nil
}

func (fx *fixture) violated(format string, a ...any) {
	fx.mu.Lock()
	defer fx.mu.Unlock()
	text := "I1: " + fmt.Sprintf(format, a...)
	if !slices.Contains(fx.violations, text) {
		fx.violations = append(fx.violations, text)
	}
}

// watch observes until stop is called, which returns the findings.
func (fx *fixture) watch() (stop func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if err := fx.observe(ctx); err != nil && ctx.Err() == nil {
				fx.violated("observe: %v", err)
			}
			select {
			case <-fx.sides[0].changed:
			case <-fx.sides[1].changed:
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	return func() []string {
		cancel()
		done.Wait()
		fx.mu.Lock()
		defer fx.mu.Unlock()
		seen := fx.violations
		fx.violations = nil
		return seen
	}
}
