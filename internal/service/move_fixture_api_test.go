//go:build api

package service

import (
	"bytes"
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
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// moveFixture is a fleet in its own namespace, which moves between two management clusters, with
// its own store and catalog.
type moveFixture struct {
	*twoClusters
	t         testing.TB
	dir       string
	namespace string
	at        int // the side on which the fleet is
	store     *store.Store
	noFence   bool // moves write no ownership records
	// was is the fleet before the present move, by ref, and without the namespace.
	was map[object.Ref]*unstructured.Unstructured

	mu         sync.Mutex
	violations []string
}

// the first of them is removed again: then three are left, two with the same class
const fleetClusters = 4

// newMoveFixture makes a fleet of three workload clusters on the first side: two share a
// ClusterClass and own a Secret together, the third is paused. Only one of them has workers: every
// object costs time in every state.
func newMoveFixture(t testing.TB, g *twoClusters, prefix string) *moveFixture {
	t.Helper()
	y := &moveFixture{twoClusters: g, t: t, dir: t.TempDir(), namespace: prefix + "-team-0000"}
	servers.Fleet(t, 0, "--namespace-prefix", prefix+"-", "--workloads", fmt.Sprint(fleetClusters),
		"--machines", "1", "--fast")
	for _, s := range g.sides {
		s.begin(y.namespace)
	}
	if _, err := store.Keygen(filepath.Join(y.dir, "keys"), time.Now()); err != nil {
		t.Fatal(err)
	}
	must(t, y.openStore())
	y.remove(0, func(name string) bool {
		return unitName(name) == unitPrefix+"0000" || strings.Contains(name, "-md-0") &&
			unitName(name) != classyUnits[0]
	})
	y.change(0, clusterRef(y.namespace, pausedUnit), func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
	})
	var owners []any
	for _, unit := range classyUnits {
		u := y.get(0, clusterRef(y.namespace, unit))
		owners = append(owners, map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(),
			"name": u.GetName(), "uid": string(u.GetUID())})
	}
	y.change(0, object.Ref{Kind: "Secret", Namespace: y.namespace, Name: "registry-credentials"},
		func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedSlice(u.Object, owners, "metadata", "ownerReferences")
		})
	must(t, y.awaitQuiet())
	return y
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

func (y *moveFixture) openStore() error {
	recipient, err := os.ReadFile(filepath.Join(y.dir, "keys", "recipient.txt"))
	if err != nil {
		return err
	}
	keys, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{string(bytes.TrimSpace(recipient))}, SigningKeyFile: filepath.Join(y.dir,
			"keys", "signing.key"), TrustedKeyFiles: []string{filepath.Join(y.dir, "keys", "signing.pub")},
	})
	if err != nil {
		return err
	}
	y.store, err = store.Open(y.t.Context(),
		store.Options{Bucket: directory.New(filepath.Join(y.dir, "store")), Keys: keys, Create: true})
	return err
}

func (y *moveFixture) source() *side { return y.sides[y.at] }
func (y *moveFixture) target() *side { return y.sides[1-y.at] }

// tryLive reads all objects in the fleet's namespace on one side.
func (y *moveFixture) tryLive(ctx context.Context,
	i int) (map[object.Ref]*unstructured.Unstructured,
	error) {
	out := map[object.Ref]*unstructured.Unstructured{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(4)
	for _, k := range y.sides[i].kinds {
		if !k.Namespaced {
			continue
		}
		g.Go(func() error {
			_, err := y.sides[i].Reader().List(ctx, k, kube.ListOptions{Namespace: y.namespace},
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

func (y *moveFixture) live(i int) map[object.Ref]*unstructured.Unstructured {
	y.t.Helper()
	out, err := y.tryLive(y.t.Context(), i)
	must(y.t, err)
	return out
}

func (y *moveFixture) kind(i int, gk object.GroupKind) kube.Kind {
	k, ok := kube.FindKind(y.sides[i].kinds, gk)
	if !ok {
		y.t.Fatalf("%s is not served", gk)
	}
	return k
}

func (y *moveFixture) get(i int, ref object.Ref) *unstructured.Unstructured {
	y.t.Helper()
	u, err := y.sides[i].Reader().Get(y.t.Context(), y.kind(i, ref.GroupKind()), ref.Namespace,
		ref.Name)
	must(y.t, err)
	return u
}

// change writes to an object of a side, as a user would.
func (y *moveFixture) change(i int, ref object.Ref, fn func(u *unstructured.Unstructured)) {
	y.t.Helper()
	must(y.t, y.tryChange(i, ref, fn))
}

func (y *moveFixture) tryChange(i int, ref object.Ref,
	fn func(u *unstructured.Unstructured)) error {
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

// remove removes objects by their names, with all finalizers.
func (y *moveFixture) remove(i int, which func(name string) bool) {
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
				err = y.sides[i].Writer().Delete(y.t.Context(), y.kind(i, ref.GroupKind()), ref.Namespace,
					ref.Name, u.GetUID(), "")
			}
			if err != nil && !apierrors.IsNotFound(err) {
				y.t.Fatalf("remove %s: %v", ref, err)
			}
		}
	}
}

// awaitQuiet waits until the controllers of the source write nothing more, and stores the state of
// the fleet in was.
func (y *moveFixture) awaitQuiet() error {
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
		if maps.EqualFunc(first, second, func(a, b *unstructured.Unstructured) bool {
			return a.GetResourceVersion() == b.GetResourceVersion()
		}) {
			y.was = second
			return nil
		}
	}
}

func (y *moveFixture) order(do string) order {
	return order{
		Dir: y.dir, Sides: [2]kube.Options{servers.Options(0), servers.Options(1)}, From: y.at, Do: do,
		Spec: &mgmtv1.MoveSpec{Source: y.source().Name(), Target: y.target().Name(), NoFence: y.noFence,
			Selection: &mgmtv1.Selection{Namespaces: []string{y.namespace}}},
	}
}

// errNotKilled means that a process ended by itself although it was to die.
var errNotKilled = errors.New("it did not come to the point where it was to die")

// run carries out an order in a process of its own. For one that was to die its error is nil when
// it did.
func (y *moveFixture) run(o order) (end, error) {
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
func (y *moveFixture) workloadID(unit string) string {
	u := y.was[clusterRef(y.namespace, unit)]
	if id := u.GetAnnotations()[capi.AnnotationWorkloadID]; id != "" {
		return id
	}
	return string(u.GetUID())
}

// handedOver returns the units that belong to the target by their ownership records.
func (y *moveFixture) handedOver(ctx context.Context) (map[string]bool, error) {
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

// reconciled reports for Clusters of one side whether controllers work on them, with their
// resourceVersions.
func (y *moveFixture) reconciled(ctx context.Context, i int) (map[string]string, error) {
	out := map[string]string{}
	k, _ := kube.FindKind(y.sides[i].kinds, capi.Cluster)
	_, err := y.sides[i].Reader().List(ctx, k, kube.ListOptions{Namespace: y.namespace},
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
func (y *moveFixture) observe(ctx context.Context) error {
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

func (y *moveFixture) violated(format string, a ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	text := "I1: " + fmt.Sprintf(format, a...)
	if !slices.Contains(y.violations, text) {
		y.violations = append(y.violations, text)
	}
}

// watch observes until stop is called, which returns the findings.
func (y *moveFixture) watch() (stop func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	first, second := y.sides[0].changes(y.namespace), y.sides[1].changes(y.namespace)
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
