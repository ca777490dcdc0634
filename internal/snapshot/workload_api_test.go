//go:build api

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	randomPrefix = "random-"
	randomGroup  = "random.mgmtd.dev"
	heldBy       = randomGroup + "/held"
)

var (
	widgetKind = object.GroupKind{Group: randomGroup, Kind: "Widget"} // upgraded again and again
	gizmoKind  = object.GroupKind{Group: randomGroup, Kind: "Gizmo"}  // comes and goes
	gadgetKind = object.GroupKind{Group: randomGroup, Kind: "Gadget"} // captured by relation alone
)

// errNothing says that there is no object to do that with.
var errNothing = errors.New("nothing to do that with")

// workload does random things to a source: what, follows from its seed; what the garbage collector
// makes of them meanwhile, does not.
type workload struct {
	t          testing.TB
	ctx        context.Context
	m          *kube.Mgmt
	rand       *rand.Rand
	namespaces []string
	kinds      []kube.Kind
	deck       []int // of the operations, those that are still to come before they all come again
	made       int
	revision   int // of the schema of Widgets
	did        map[string]int
	// remade says that the kind Gizmo was removed since the last snapshot. A kind that was made again
	// may seem the same, but the API server has a new cache of it, and answers 410 to a watch from an
	// earlier version.
	remade bool
}

// operation is one thing that may happen. Those that change kinds wait until the API server serves
// the change.
type operation struct {
	name  string
	run   func(*workload) error
	kinds bool
}

var operations = []operation{
	{"touch", (*workload).touch, false},
	{"touch", (*workload).touch, false},
	{"create", (*workload).create, false},
	{"create", (*workload).create, false},
	{"create", (*workload).create, false},
	{"delete", (*workload).remove, false},
	{"create again", (*workload).again, false},
	{"create again", (*workload).again, false},
	{"change owners", (*workload).own, false},
	{"change owners", (*workload).own, false},
	{"relabel", (*workload).relabel, false},
	{"name another Secret", (*workload).name, false},
	{"pause", (*workload).pause, false},
	{"hold", (*workload).hold, false},
	{"let go", (*workload).letGo, false},
	{"write status", (*workload).status, false},
	{"renew lease", (*workload).renew, false},
	{"label namespace", (*workload).namespace, false},
	{"label kind", (*workload).labelKind, true},
	{"upgrade kind", (*workload).upgradeKind, true},
	{"add or remove kind", (*workload).comeOrGo, true},
}

func newWorkload(t testing.TB, m *kube.Mgmt, r *rand.Rand) *workload {
	t.Helper()
	w := &workload{t: t, ctx: t.Context(), m: m, rand: r, did: map[string]int{}}
	if _, err := m.Reader().List(t.Context(), kube.NamespaceKind, kube.ListOptions{},
		func(raw []byte) error {
			if name := mgmtKey(raw).Name; strings.HasPrefix(name, randomPrefix) {
				w.namespaces = append(w.namespaces, name)
			}
			return nil
		}); err != nil || len(w.namespaces) == 0 {
		t.Fatal(w.namespaces, err)
	}
	w.namespaces = append(w.namespaces, randomPrefix+"more")
	u := newObject(kube.NamespaceKind, "", randomPrefix+"more")
	if _, err := m.Writer().Create(t.Context(), kube.NamespaceKind, u); err != nil {
		t.Fatal(err)
	}
	w.beginKinds()
	return w
}

// some does n operations, and only such as change no kinds if they are to be quick.
func (w *workload) some(n int, quick bool) {
	for tries := 0; n > 0 && tries < 100; tries++ {
		if len(w.deck) == 0 {
			w.deck = w.rand.Perm(len(operations))
		}
		o := operations[w.deck[0]]
		w.deck = w.deck[1:]
		if quick && o.kinds {
			continue
		}
		err := o.run(w)
		switch {
		case err == nil:
			w.did[o.name]++
			n--
		case errors.Is(err, errNothing), apierrors.IsNotFound(err), apierrors.IsConflict(err),
			apierrors.IsAlreadyExists(err):
			// the garbage collector was there first
		case w.ctx.Err() == nil:
			w.t.Errorf("%s: %v", o.name, err)
		}
	}
}

func (w *workload) kind(gk object.GroupKind) kube.Kind {
	k, ok := kube.FindKind(w.kinds, gk)
	if !ok {
		w.t.Fatalf("%s is not served", gk)
	}
	return k
}

func newObject(k kube.Kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.APIVersion(),
		"kind": k.Kind}}
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

// pick gives a random object of one of these kinds, in a random namespace, that fits.
func (w *workload) pick(fits func(*unstructured.Unstructured) bool, gks ...object.GroupKind) (
	kube.Kind, *unstructured.Unstructured, error) {
	k, ok := kube.FindKind(w.kinds, gks[w.rand.IntN(len(gks))])
	if !ok {
		return k, nil, errNothing
	}
	var all []*unstructured.Unstructured
	_, err := w.m.Reader().List(w.ctx, k, kube.ListOptions{}, func(raw []byte) error {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return err
		}
		if (strings.HasPrefix(u.GetNamespace(), randomPrefix) || u.GetNamespace() == "") &&
			u.GetName() != anchor && (fits == nil || fits(u)) {
			all = append(all, u)
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = errNothing
	}
	if err != nil {
		return k, nil, err
	}
	return k, all[w.rand.IntN(len(all))], nil
}

func alive(u *unstructured.Unstructured) bool { return u.GetDeletionTimestamp() == nil }

func isHeld(u *unstructured.Unstructured) bool {
	for _, f := range u.GetFinalizers() {
		if f == heldBy {
			return true
		}
	}
	return false
}

var (
	secret, configMap = kube.SecretKind.GroupKind, kube.ConfigMapKind.GroupKind
	// plain are the kinds of which objects come and go without taking many along.
	plain = []object.GroupKind{secret, configMap, widgetKind, gadgetKind, secret, configMap, widgetKind,
		gizmoKind, gadgetKind}
	fleet = append([]object.GroupKind{
		capi.Cluster, capi.Machine, capi.KubeadmControlPlane,
		{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"},
		{Group: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig"},
		{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachine"},
	}, plain...)
)

func (w *workload) number() string {
	w.made++
	return fmt.Sprintf("%d-%d", w.made, w.rand.IntN(1000))
}

func (w *workload) update(k kube.Kind, u *unstructured.Unstructured) error {
	_, err := w.m.Writer().Update(w.ctx, k, u)
	return err
}

func (w *workload) touch() error {
	k, u, err := w.pick(nil, fleet...)
	if err != nil {
		return err
	}
	_, err = w.m.Writer().PatchMetadata(w.ctx, k, u.GetNamespace(), u.GetName(),
		map[string]any{"annotations": map[string]any{randomGroup + "/touched": w.number()}})
	return err
}

// create makes an object that is captured for one reason or another, or for none.
func (w *workload) create() error {
	k, ok := kube.FindKind(w.kinds, plain[w.rand.IntN(len(plain))])
	if !ok {
		return errNothing
	}
	name, namespace := "made-"+w.number(), w.namespaces[w.rand.IntN(len(w.namespaces))]
	_, cluster, err := w.pick(nil, capi.Cluster)
	if err != nil {
		return err
	}
	if w.rand.IntN(2) == 0 {
		namespace = cluster.GetNamespace()
	}
	if k.GroupKind == secret && w.rand.IntN(4) == 0 {
		name += "-ca" // by its name a certificate of a Cluster, which is not there
	}
	u := newObject(k, namespace, name)
	if !k.Namespaced {
		u.SetNamespace("")
	}
	switch k.GroupKind {
	case secret:
		u.Object["stringData"] = map[string]any{"value": w.number()}
	case configMap:
		u.Object["data"] = map[string]any{"value": w.number()}
	default:
		u.Object["spec"] = map[string]any{"size": int64(w.made), "clusterName": cluster.GetName()}
	}
	switch w.rand.IntN(4) {
	case 0:
		u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": cluster.GetName()})
	case 1:
		u.SetLabels(map[string]string{"clusterctl.cluster.x-k8s.io/move": ""})
	case 2:
		w.owned(u)
	}
	_, err = w.m.Writer().Create(w.ctx, k, u)
	return err
}

// owned gives an object a random owner in its namespace, if there is one.
func (w *workload) owned(u *unstructured.Unstructured) {
	k, owner, err := w.pick(func(o *unstructured.Unstructured) bool {
		return alive(o) && o.GetNamespace() == u.GetNamespace() && o.GetUID() != u.GetUID()
	}, fleet...)
	if err != nil {
		return
	}
	_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"apiVersion": k.APIVersion(),
		"kind": k.Kind, "name": owner.GetName(), "uid": string(owner.GetUID())}}, "metadata",
		"ownerReferences")
}

func (w *workload) remove() error {
	k, u, err := w.pick(alive, plain...)
	if err != nil {
		return err
	}
	return w.m.Writer().Delete(w.ctx, k, u.GetNamespace(), u.GetName(), u.GetUID(), "")
}

// again deletes an object and creates it again under the same name. What it owned goes.
func (w *workload) again() error {
	k, u, err := w.pick(func(u *unstructured.Unstructured) bool {
		return alive(u) &&
			len(u.GetFinalizers()) == 0
	},
		append(plain, capi.Machine, object.GroupKind{Group: "infrastructure.cluster.x-k8s.io",
			Kind: "DevMachine"})...)
	if err != nil {
		return err
	}
	if err := w.m.Writer().Delete(w.ctx, k, u.GetNamespace(), u.GetName(), u.GetUID(),
		""); err != nil {
		return err
	}
	if err := w.until(func() (bool, error) {
		_, err := w.m.Reader().Get(w.ctx, k, u.GetNamespace(), u.GetName())
		return apierrors.IsNotFound(err), nil
	}); err != nil {
		return err
	}
	u.SetUID("")
	u.SetResourceVersion("")
	u.SetCreationTimestamp(zeroTime)
	_, err = w.m.Writer().Create(w.ctx, k, u)
	return err
}

// until waits for what the API server or a controller does soon.
func (w *workload) until(is func() (bool, error)) error {
	for range 1000 {
		if ok, err := is(); ok || err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("it never came")
}
