//go:build api

package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

const relatedGroup = "related.mgmtd.dev"

// relatedFixture is a source with kinds of which nothing is known: no row, and no label of Cluster
// API on their CRDs.
type relatedFixture struct {
	t               testing.TB
	m               *kube.Mgmt
	gadget, tenant  kube.Kind
	namespace       string
	cluster, secret *unstructured.Unstructured
	captured        []string
	clusterKind     kube.Kind
}

func newRelatedFixture(t *testing.T, prefix string) *relatedFixture {
	t.Helper()
	servers.Fleet(t, 0, "--namespace-prefix", prefix, "--workloads", "1", "--machines", "1", "--fast")
	f := &relatedFixture{t: t, m: servers.Connect(t, 0)}
	f.namespace = onlyNamespace(t, f.m, prefix)
	f.gadget = f.makeKind("Gadget", "gadgets", "Namespaced")
	f.tenant = f.makeKind("Tenant", "tenants", "Cluster")
	kinds, err := f.m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.clusterKind, _ = kube.FindKind(kinds, capi.Cluster)
	f.cluster = f.get(f.clusterKind, "w-00000")
	f.secret = f.get(kube.SecretKind, "w-00000-ca")
	f.makeObjects()
	return f
}

func (f *relatedFixture) makeKind(kind, plural, scope string) kube.Kind {
	f.t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1",
		"kind":"CustomResourceDefinition","metadata":{"name":"%s.%s"},"spec":{"group":%q,"scope":%q,
		"names":{"kind":%q,"plural":%q},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`,
		plural, relatedGroup, relatedGroup, scope, kind, plural), u); err != nil {
		f.t.Fatal(err)
	}
	made, err := f.m.Writer().Create(f.t.Context(), crdKind, u)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { f.removeKind(u.GetName(), made.GetUID()) })
	w := &workload{t: f.t, ctx: f.t.Context(), m: f.m}
	gk := object.GroupKind{Group: relatedGroup, Kind: kind}
	if err := w.served(gk); err != nil {
		f.t.Fatal(err)
	}
	return w.kind(gk)
}

// removeKind deletes a CRD and waits until it is gone: the next test must not see its objects go.
func (f *relatedFixture) removeKind(crd string, uid types.UID) {
	ctx := context.WithoutCancel(f.t.Context())
	if err := f.m.Writer().Delete(ctx, crdKind, "", crd, uid, ""); err != nil {
		f.t.Error(err)
		return
	}
	w := &workload{t: f.t, ctx: ctx, m: f.m}
	if err := w.until(func() (bool, error) {
		_, err := f.m.Reader().Get(ctx, crdKind, "", crd)
		return apierrors.IsNotFound(err), nil
	}); err != nil {
		f.t.Error(err)
	}
}

func (f *relatedFixture) get(k kube.Kind, name string) *unstructured.Unstructured {
	f.t.Helper()
	u, err := f.m.Reader().Get(f.t.Context(), k, f.namespace, name)
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// make creates an object; change may be nil.
func (f *relatedFixture) make(k kube.Kind, name string,
	change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	f.t.Helper()
	u := newObject(k, f.namespace, name)
	if !k.Namespaced {
		u.SetNamespace("")
	}
	if change != nil {
		change(u)
	}
	made, err := f.m.Writer().Create(f.t.Context(), k, u)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		f.t.Fatal(err)
	}
	return made
}

// addOwner adds an owner reference to u.
func addOwner(u, owner *unstructured.Unstructured) {
	owners, _, _ := unstructured.NestedSlice(u.Object, "metadata", "ownerReferences")
	owners = append(owners, map[string]any{"apiVersion": owner.GetAPIVersion(),
		"kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID())})
	_ = unstructured.SetNestedSlice(u.Object, owners, "metadata", "ownerReferences")
}

func (f *relatedFixture) update(k kube.Kind, u *unstructured.Unstructured) {
	f.t.Helper()
	if _, err := f.m.Writer().Update(f.t.Context(), k, u); err != nil {
		f.t.Fatal(err)
	}
}

// makeObjects makes one object for each relation, and others for none.
func (f *relatedFixture) makeObjects() {
	f.t.Helper()
	owned := f.make(f.gadget, "owned", func(u *unstructured.Unstructured) { addOwner(u, f.cluster) })
	f.make(f.gadget, "labelled", func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{capi.LabelClusterName: f.cluster.GetName()})
	})
	owner := f.make(f.gadget, "owner", nil)
	addOwner(f.secret, owner)
	f.update(kube.SecretKind, f.secret)
	tenant := f.make(f.tenant, "of-namespace", nil)
	ns, err := f.m.Reader().Get(f.t.Context(), kube.NamespaceKind, "", f.namespace)
	if err != nil {
		f.t.Fatal(err)
	}
	addOwner(ns, tenant)
	f.update(kube.NamespaceKind, ns)

	f.make(f.gadget, "unrelated", nil)
	f.make(f.gadget, "labelled-for-nobody", func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{capi.LabelClusterName: "nobody"})
	})
	f.make(f.gadget, "two-hops-down", func(u *unstructured.Unstructured) { addOwner(u, owned) })
	up := f.make(f.gadget, "two-hops-up", nil)
	addOwner(owner, up)
	f.update(f.gadget, owner)
	f.make(kube.SecretKind, "of-gadget", func(u *unstructured.Unstructured) { addOwner(u, owned) })
	f.make(f.gadget, "uid-of-another", func(u *unstructured.Unstructured) {
		other := f.cluster.DeepCopy()
		other.SetUID("00000000-0000-0000-0000-000000000000")
		u.SetFinalizers([]string{heldBy}) // else the garbage collector deletes it
		addOwner(u, other)
	})
	f.t.Cleanup(func() {
		if err := f.takeApart(context.WithoutCancel(f.t.Context())); err != nil {
			f.t.Error(err)
		}
	})
	f.captured = []string{"Gadget/labelled", "Gadget/owned", "Gadget/owner", "Tenant/of-namespace"}
}

// takeApart removes what would disturb other tests when the kinds go: a finalizer that holds an
// object, and the owners by which the garbage collector would delete a Namespace and Secrets.
func (f *relatedFixture) takeApart(ctx context.Context) error {
	for _, o := range []struct {
		kind            kube.Kind
		namespace, name string
	}{
		{f.gadget, f.namespace, "uid-of-another"},
		{kube.NamespaceKind, "", f.namespace},
		{kube.SecretKind, f.namespace, "w-00000-ca"},
		{kube.SecretKind, f.namespace, "w-00000-sa"},
	} {
		u, err := f.m.Reader().Get(ctx, o.kind, o.namespace, o.name)
		if err != nil {
			return err
		}
		u.SetFinalizers(nil)
		u.SetOwnerReferences(nil)
		if _, err = f.m.Writer().Update(ctx, o.kind, u); err != nil {
			return err
		}
	}
	return nil
}

// relatedIn are the objects of the fixture in a graph, and the Secret that only one of them owns.
func (f *relatedFixture) relatedIn(s *snapshot.Snapshot) (names []string) {
	for _, n := range s.Graph.Nodes {
		if n.Group == relatedGroup && (n.Namespace == f.namespace || n.Namespace == "") ||
			n.Name == "of-gadget" {
			names = append(names, n.Kind+"/"+n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestAPIRelatedObjectsAreCaptured: objects of kinds of which nothing is known are in a snapshot
// when they own or are owned by a captured object, or have the label of its Cluster: one hop, and
// no further.
func TestAPIRelatedObjectsAreCaptured(t *testing.T) {
	f := newRelatedFixture(t, "related-")
	for name, limit := range map[string]int{"small": exactLists, "large": watches} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			r := run(t, f.m, st, capture.Scope{Namespaces: []string{f.namespace}}, limit)
			s, err := snapshot.Open(t.Context(), st, r.Envelope, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.relatedIn(s); !slices.Equal(got, f.captured) {
				t.Errorf("captured %v, want %v", got, f.captured)
			}
			if len(r.Missing) > 0 {
				t.Errorf("missing %v: what is captured by relation needs nothing", r.Missing)
			}
			unit := f.namespace + "/" + f.cluster.GetName()
			for _, n := range s.Graph.Nodes {
				if n.Group != relatedGroup {
					continue
				}
				if !n.Related || (n.Unit == unit) != (n.Namespace != "") {
					t.Errorf("%s: related %v, unit %q", n.Ref, n.Related, n.Unit)
				}
			}
		})
	}
}

// TestAPIUnrelatedObjectsAreNotHeld: nothing of them is in the cut, nor in what the next capture
// starts from: a source may have very many.
func TestAPIUnrelatedObjectsAreNotHeld(t *testing.T) {
	f := newRelatedFixture(t, "unheld-")
	cut, err := capture.Exact(t.Context(), f.m.Reader(), capture.Scope{}, nil,
		func(*graph.Node, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var held []string
	for _, n := range slices.Concat(cut.Graph.Nodes, cut.NotCaptured) {
		if n.Group == relatedGroup {
			held = append(held, n.Name)
		}
	}
	for _, name := range []string{"unrelated", "two-hops-up", "two-hops-down"} {
		if slices.Contains(held, name) {
			t.Errorf("%s is held: %v", name, held)
		}
	}
}

// TestAPIKindsThatCannotBeListedAreReported: a kind of which nothing is known and that we may not
// list, or that the server cannot list, or that is gone, does not prevent a snapshot. The next one
// reads the kind again.
func TestAPIKindsThatCannotBeListedAreReported(t *testing.T) {
	f := newRelatedFixture(t, "unread-")
	gadgets := schema.GroupResource{Group: relatedGroup, Resource: "gadgets"}
	for name, refusal := range map[string]error{
		"forbidden": apierrors.NewForbidden(gadgets, "", nil),
		"broken":    apierrors.NewInternalError(errors.New("conversion webhook is down")),
		"gone":      apierrors.NewNotFound(gadgets, ""),
	} {
		for way, limit := range map[string]int{"small": exactLists, "large": watches} {
			t.Run(name+"/"+way, func(t *testing.T) {
				r := newChainFixture(t)
				r.exactLimit = limit
				refused := false
				r.source.onList = func(k kube.Kind, _ kube.ListOptions) error {
					if k.GroupKind != f.gadget.GroupKind {
						return nil
					}
					refused = true
					return fmt.Errorf("list %s: %w", k.GroupKind, refusal)
				}
				taken, err := snapshot.Create(t.Context(), r.options())
				if err != nil || !refused {
					t.Fatal(err, refused)
				}
				if len(taken.Unread) != 1 || taken.Unread[0].GroupKind != f.gadget.GroupKind {
					t.Errorf("not read: %v", taken.Unread)
				}
				if got := f.relatedIn(r.open(r.st, taken.Envelope).Snapshot); !slices.Equal(got,
					[]string{"Tenant/of-namespace"}) {
					t.Errorf("captured %v", got)
				}
				r.source.onList = nil
				taken, _ = r.take(nil)
				if got := f.relatedIn(r.open(r.st, taken.Envelope).Snapshot); len(taken.Unread) > 0 ||
					!slices.Equal(got, f.captured) {
					t.Errorf("then %v, not read %v", got, taken.Unread)
				}
			})
		}
	}
}

// TestAPIRelatedObjectsAreReadOnce: a snapshot reads those that changed, and finds an owner that
// nothing but the object that it owns shows.
func TestAPIRelatedObjectsAreReadOnce(t *testing.T) {
	f := newRelatedFixture(t, "again-")
	other := f.get(kube.SecretKind, "w-00000-sa")
	for way, limit := range map[string]int{"small": exactLists, "large": watches} {
		t.Run(way, func(t *testing.T) {
			r := newChainFixture(t)
			r.exactLimit = limit
			r.take(nil)
			if taken, _ := r.take(nil); taken.Read > 0 {
				t.Errorf("%d objects read though nothing changed", taken.Read)
			}
			name := "new-owner-" + way
			owner := f.make(f.gadget, name, nil)
			r.take(nil) // it owns nothing so far
			other = f.get(kube.SecretKind, other.GetName())
			addOwner(other, owner)
			f.update(kube.SecretKind, other)
			taken, _ := r.take(nil)
			if got := f.relatedIn(r.open(r.st, taken.Envelope).Snapshot); !slices.Contains(got,
				"Gadget/"+name) || taken.Read != 2 {
				t.Errorf("captured %v, %d objects read", got, taken.Read)
			}
		})
	}
}
