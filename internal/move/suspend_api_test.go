//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// kustomizations is the kind of Flux's Kustomizations. Its CRD here has the group, the kind and the
// versions of fluxcd/kustomize-controller v1.9.4,
// config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml, and no schema.
var kustomizations = kube.Kind{GroupKind: object.GroupKind{Group: "kustomize.toolkit.fluxcd.io",
	Kind: "Kustomization"}, Version: "v1", Resource: "kustomizations", Namespaced: true}

const kustomizationCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"kustomizations.kustomize.toolkit.fluxcd.io"},
	"spec":{"group":"kustomize.toolkit.fluxcd.io","scope":"Namespaced","names":{"kind":"Kustomization",
		"listKind":"KustomizationList","plural":"kustomizations","singular":"kustomization"},
	"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// make creates an object of the source from a JSON text.
func (fx *fixture) make(k kube.Kind, text string) *unstructured.Unstructured {
	fx.t.Helper()
	u := &unstructured.Unstructured{}
	must(fx.t, json.Unmarshal([]byte(text), &u.Object))
	u, err := fx.source().Writer().Create(fx.t.Context(), k, u)
	must(fx.t, err)
	return u
}

// installFlux makes a root Kustomization, which applies another, which applies all Clusters of the
// fleet. Nobody reconciles them.
func (fx *fixture) installFlux() {
	fx.t.Helper()
	crds := kube.Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
		Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}
	crd := fx.make(crds, kustomizationCRD)
	w := fx.source().Writer()
	fx.t.Cleanup(func() {
		must(fx.t, w.Delete(context.Background(), crds, "", crd.GetName(), crd.GetUID(), ""))
	})
	for {
		_, err := fx.source().Reader().List(fx.t.Context(), kustomizations,
			kube.ListOptions{Limit: 1}, func([]byte) error { return nil })
		if err == nil {
			break
		}
		if !apierrors.IsNotFound(err) {
			fx.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	labels := `"labels":{"kustomize.toolkit.fluxcd.io/name":"root",
		"kustomize.toolkit.fluxcd.io/namespace":"` + fx.namespace + `"}`
	head := `{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","metadata":{
		"namespace":"` + fx.namespace + `",`
	fx.make(kustomizations, head+`"name":"root",`+labels+`},"spec":{"prune":true}}`)
	fx.make(kustomizations, head+`"name":"apps",`+labels+`},"spec":{"suspend":false}}`)
	for _, unit := range allUnits {
		fx.change(0, clusterRef(fx.namespace, unit), func(u *unstructured.Unstructured) {
			all := u.GetLabels()
			if all == nil {
				all = map[string]string{}
			}
			all["kustomize.toolkit.fluxcd.io/name"] = "apps"
			all["kustomize.toolkit.fluxcd.io/namespace"] = fx.namespace
			u.SetLabels(all)
		})
	}
	must(fx.t, fx.awaitQuiet())
}

// switches returns the spec.suspend of both Kustomizations, "absent" where there is none.
func (fx *fixture) switches() string {
	fx.t.Helper()
	var texts []string
	for _, name := range []string{"root", "apps"} {
		u, err := fx.sides[0].Reader().Get(fx.t.Context(), kustomizations, fx.namespace, name)
		must(fx.t, err)
		text := name + " absent"
		if v, ok, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); ok {
			text = name + map[bool]string{true: " true", false: " false"}[v]
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// setSuspended suspends a Kustomization or resumes it, as a user would.
func (fx *fixture) setSuspended(name string, to bool) {
	fx.t.Helper()
	must(fx.t, fx.changeKustomization(name, func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, to, "spec", "suspend")
	}))
}

func (fx *fixture) changeKustomization(name string,
	fn func(u *unstructured.Unstructured) error) error {
	u, err := fx.sides[0].Reader().Get(fx.t.Context(), kustomizations, fx.namespace, name)
	if err == nil {
		err = fn(u)
	}
	if err == nil {
		_, err = fx.sides[0].Writer().Update(kube.WithFieldManager(fx.t.Context(), "flux"),
			kustomizations, u)
	}
	return err
}

// TestAPIMoveSuspendsGitOpsFromTheRootDown: without the word of the operator, an active
// Kustomization blocks the move. With it, a process that dies after its first suspension leaves
// the root suspended and knows it: the rollback gives both Kustomizations back as they were. A
// resume refuses to go on while one of them works again. A whole move leaves both suspended.
func TestAPIMoveSuspendsGitOpsFromTheRootDown(t *testing.T) {
	fx := newFixture(t, "gitops")
	fx.installFlux()
	const before = "root absent, apps false"
	e := fx.carryOut(fx.order(doMove), catalog.Failed, nil)
	all := strings.Join(e.Findings, "\n")
	for _, words := range []string{"gitops-owner", fx.namespace + "/root", fx.namespace + "/apps",
		"not suspended"} {
		if !strings.Contains(all, words) {
			t.Errorf("no finding has %q: %s", words, all)
		}
	}
	if got := fx.switches(); got != before {
		t.Errorf("a blocked move left %s", got)
	}

	o := fx.order(doMove)
	o.Spec.SuspendGitOps = true
	o.Kill = &kill{Step: "-/suspend-gitops", Point: inside, Write: 1, Answered: true}
	if _, err := fx.run(o); err != nil {
		t.Fatal(err)
	}
	if got := fx.switches(); got != "root true, apps false" {
		t.Fatalf("the process left %s", got)
	}
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	if got := fx.switches(); got != before {
		t.Errorf("the rollback left %s", got)
	}
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(true, st))

	// Another move has found the root suspended, and relies on that.
	if _, err := fx.run(o); err != nil {
		t.Fatal(err)
	}
	other := clusterRef(fx.namespace, allUnits[0])
	fx.change(0, other, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, capi.AnnotationOperation, "0123456789ab/1")
	})
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	if got := fx.switches(); got != "root true, apps false" {
		t.Errorf("the rollback beside another move left %s", got)
	}
	fx.change(0, other, func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationOperation)
	})
	must(t, fx.changeKustomization("root", func(u *unstructured.Unstructured) error {
		unstructured.RemoveNestedField(u.Object, "spec", "suspend")
		return nil
	}))

	// Before the pre-copy of the first unit is written, no other one is locked.
	o.Kill = &kill{Step: "ns/" + allUnits[0] + "/pre-create/02", Point: inside, Write: 1,
		Answered: true}
	if _, err := fx.run(o); err != nil {
		t.Fatal(err)
	}
	fx.setSuspended("apps", false)
	if e := fx.carryOut(fx.order(doResume), catalog.Failed, nil); !strings.Contains(e.Message,
		"work again: 1, the first: Kustomization.kustomize.toolkit.fluxcd.io/"+fx.namespace+"/apps") {
		t.Errorf("the resume ended with %q", e.Message)
	}
	fx.setSuspended("apps", true)

	// Somebody resumes it while a run makes units ready: none of them is paused.
	late := allUnits[len(allUnits)-1]
	e = fx.carryOut(fx.order(doResume), catalog.Failed, fx.whenOnce(late, "lock", catalog.StepBegun,
		func() error {
			return fx.changeKustomization("apps", func(u *unstructured.Unstructured) error {
				return unstructured.SetNestedField(u.Object, false, "spec", "suspend")
			})
		}))
	if !strings.Contains(strings.Join(e.Findings, "\n"), "work again: 1, the first: ") {
		t.Errorf("a resume beside an owner that works again found %q", e.Findings)
	}
	u, err := fx.sides[0].Reader().Get(t.Context(), fx.kind(0, capi.Cluster), fx.namespace, late)
	must(t, err)
	if paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); paused {
		t.Errorf("%s is paused beside an owner that works", late)
	}
	fx.setSuspended("apps", true)
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	if got := fx.switches(); got != "root true, apps true" {
		t.Errorf("the move left %s", got)
	}
}
