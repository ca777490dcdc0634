package fence

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAClusterThatIsReleasedWhileItIsArmedComesOffTheList: a fence by an older record would leave a
// Cluster at work on the list, which nobody could unpause after its next pause.
func TestAClusterThatIsReleasedWhileItIsArmedComesOffTheList(t *testing.T) {
	m := newMemory()
	stays := m.addCluster("stays", true, fenced(capi.FencedByRecord))
	released := m.addCluster("released", true, fenced(capi.FencedByRecord))
	again := m.addCluster("again", true, fenced(capi.FencedByRecord))
	f := m.fence()
	m.addCluster("released", false, nil)
	m.addCluster("again", false, nil)
	m.objects[again.Ref].SetUID("another")
	if found := f.Arm(t.Context(), []Cluster{stays, released, again}); len(found) > 0 {
		t.Fatal(found)
	}
	if listed := m.listed(); len(listed) != 1 || listed["ns.stays"] == "" {
		t.Errorf("listed %v", listed)
	}
	// What was on the list before is a matter of those who have put it there.
	if err := f.Policy.Arm(t.Context(), []Cluster{released}); err != nil {
		t.Fatal(err)
	}
	if found := f.Arm(t.Context(), []Cluster{released}); len(found) > 0 || len(m.listed()) != 2 {
		t.Errorf("listed %v, findings %v", m.listed(), found)
	}
}

// TestAClusterComesOffTheListAlthoughNothingProvesThatItIsOnIt: a webhook refuses the dry run.
func TestAClusterComesOffTheListAlthoughNothingProvesThatItIsOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		stays := m.addCluster("stays", true, fenced(capi.FencedByRecord))
		released := m.addCluster("released", true, fenced(capi.FencedByRecord))
		m.addCluster("released", false, nil)
		m.refuse = func(u *unstructured.Unstructured) error {
			if u.GetKind() == "Cluster" {
				return apierrors.NewForbidden(resourceOf(stays.Ref), u.GetName(), errors.New("a webhook"))
			}
			return nil
		}
		found := m.fence().Arm(t.Context(), []Cluster{stays, released})
		if listed := m.listed(); len(found) != 1 || len(listed) != 1 || listed["ns.stays"] == "" {
			t.Errorf("listed %v, findings %v", m.listed(), found)
		}
	})
}

// TestI1WhatAnotherOneOwnsIsDeniedWhereItIsGone: a GitOps tool would create it again, unpaused. A
// copy that an operation makes at this moment is not denied.
func TestI1WhatAnotherOneOwnsIsDeniedWhereItIsGone(t *testing.T) {
	m := newMemory()
	gone := Cluster{Ref: object.Ref{Group: clusterKind.Group, Kind: clusterKind.Kind, Namespace: "ns",
		Name: "gone"}, ID: "id-of-gone"}
	copied := m.addCluster("copied", true, map[string]string{capi.AnnotationWasPaused: capi.WasAbsent})
	f := m.fence()
	if found := f.Deny(t.Context(), []Cluster{gone, copied}); len(found) > 0 {
		t.Fatal(found)
	}
	if listed := m.listed(); len(listed) != 1 || listed["ns.gone"] != gone.ID || !m.enforced() {
		t.Errorf("listed %v", listed)
	}
}

// TestAFenceLeavesTheSwitchesOfWhatWasReleased: capturing a management cluster takes seconds, in
// which a unit may be released. No later lift would give its switches back.
func TestAFenceLeavesTheSwitchesOfWhatWasReleased(t *testing.T) {
	m := newMemory()
	var nodes []*graph.Node
	addon := kube.Kind{GroupKind: object.GroupKind{Group: "addons.stackhpc.com", Kind: "HelmRelease"},
		Version: "v1", Namespaced: true}
	for _, name := range []string{"fenced", "released", "deleted"} {
		ref := object.Ref{Group: addon.Group, Kind: addon.Kind, Namespace: "ns", Name: name}
		m.store(&unstructured.Unstructured{Object: map[string]any{"apiVersion": addon.APIVersion(),
			"kind": addon.Kind, "metadata": map[string]any{"name": name, "namespace": "ns"}}})
		nodes = append(nodes, &graph.Node{Ref: ref, Unit: "ns/" + name})
	}
	m.addCluster("fenced", true, fenced(capi.FencedByRecord))
	m.addCluster("released", false, nil)
	f := m.fence()
	f.Pauser = NewPauser(m, m, []kube.Kind{clusterKind, addon}, nil)
	f.Capture = func(context.Context) (*graph.Graph, error) { return &graph.Graph{Nodes: nodes}, nil }
	if err := f.pauseOwn(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	var paused []string
	for _, n := range nodes {
		if capi.PausedByUs(m.objects[n.Ref].Object) {
			paused = append(paused, n.Name)
		}
	}
	if !slices.Equal(paused, []string{"fenced"}) {
		t.Errorf("paused %v", paused)
	}
}

// TestAllowIsNotProvenByAnotherRefusal: a dry run that fails for another reason does not say that
// the API server knows that a Cluster is off the list.
func TestAllowIsNotProvenByAnotherRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := m.addCluster("a", true, nil), m.addCluster("b", true, nil)
		p := m.fence().Policy
		if err := p.Arm(t.Context(), []Cluster{a, b}); err != nil {
			t.Fatal(err)
		}
		busy := true
		m.refuse = func(u *unstructured.Unstructured) error {
			if busy && u.GetName() == "a" {
				busy = false
				return apierrors.NewTooManyRequests("busy", 1)
			}
			return nil
		}
		proofs := &countedProofs{memory: m}
		p.Prober = proofs
		if err := p.Allow(t.Context(), a.Ref); err != nil || proofs.n != 2 {
			t.Errorf("%d dry runs, %v", proofs.n, err)
		}
		m.refuse = func(u *unstructured.Unstructured) error {
			if u.GetName() == "b" {
				return apierrors.NewForbidden(resourceOf(b.Ref), "b", errors.New("a webhook denies it"))
			}
			return nil
		}
		began := time.Now()
		if err := p.Allow(t.Context(), b.Ref); err != nil || time.Since(began) < policySoon ||
			time.Since(began) > policyTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestI1ALiftAsksAboutTheWorkloadClusterThatIsListed: a Cluster was moved away and created again,
// paused. Taken off the list it could be unpaused, while the other one works elsewhere.
func TestI1ALiftAsksAboutTheWorkloadClusterThatIsListed(t *testing.T) {
	m := newMemory()
	moved := m.addCluster("w", true, fenced(capi.FencedByRecord))
	f := m.fence()
	if err := f.Policy.Arm(t.Context(), []Cluster{moved}); err != nil {
		t.Fatal(err)
	}
	again := m.addCluster("w", true, nil)
	again.ID, again.UID = "another", "another"
	m.objects[again.Ref].SetUID("another")
	r := f.Lift(t.Context(), []Cluster{again}, nil)
	if len(r.Lifted) > 0 || len(r.Findings) != 1 || m.listed()["ns.w"] != moved.ID {
		t.Errorf("lifted %v, listed %v, findings %v", r.Lifted, m.listed(), r.Findings)
	}
	gone, err := f.Gone(t.Context(), []Cluster{again}, []object.Key{{Namespace: "ns", Name: "w"}})
	if err != nil || len(gone) != 1 || gone[0].ID != moved.ID {
		t.Fatalf("named: %v, %v", gone, err)
	}
	if r = f.Forget(t.Context(), gone, nil, false); len(r.Lifted) != 1 || m.listed()["ns.w"] != lifted {
		t.Errorf("lifted %v, listed %v", r.Lifted, m.listed())
	}
}
