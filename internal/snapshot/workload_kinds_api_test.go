//go:build api

package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// anchor is a Widget that nothing happens to: it shows by which schema the API server goes.
const anchor = "anchor"

// contractLabel makes a kind one of Cluster API, of which all objects are captured.
const contractLabel = "cluster.x-k8s.io/v1beta2"

var plurals = map[object.GroupKind]string{widgetKind: "widgets", gizmoKind: "gizmos",
	gadgetKind: "gadgets"}

// customKind is a CustomResourceDefinition of the test's own. Its schema has one field that no
// other revision has: objects that are stored show it at once, and lose that of the revision
// before.
func customKind(gk object.GroupKind, scope string, revision int) *unstructured.Unstructured {
	plural := plurals[gk]
	schema := fmt.Sprintf(`{"openAPIV3Schema":{"type":"object","properties":{"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"spec":{"type":"object","properties":{
		"size":{"type":"integer"},"clusterName":{"type":"string"},%q:{"type":"string","default":"of this revision"}}}}}}`, field(revision))
	u := &unstructured.Unstructured{}
	err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.%s","labels":{%q:"v1"}},
		"spec":{"group":%q,"scope":%q,"names":{"kind":%q,"plural":%q},"versions":[
		{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":%s},
		{"name":"v2","served":false,"storage":false,"subresources":{"status":{}},"schema":%s}]}}`, plural, gk.Group, contractLabel, gk.Group, scope, gk.Kind, plural, schema, schema), u)
	if err != nil {
		panic(err) // the text is constant but for names
	}
	if gk == gadgetKind {
		u.SetLabels(nil)
	}
	return u
}

func field(revision int) string { return fmt.Sprintf("r%d", revision) }

// beginKinds makes the kinds of the test, which go with it.
func (w *workload) beginKinds() {
	w.t.Helper()
	for _, gk := range []object.GroupKind{widgetKind, gadgetKind} {
		if _, err := w.m.Writer().Create(w.ctx, crdKind, customKind(gk, "Namespaced",
			w.revision)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() {
		w.ctx = context.WithoutCancel(w.ctx)
		for _, gk := range []object.GroupKind{widgetKind, gizmoKind, gadgetKind} {
			if err := w.removeKind(gk); err != nil && !apierrors.IsNotFound(err) {
				w.t.Error(err)
			}
		}
	})
	for _, gk := range []object.GroupKind{widgetKind, gadgetKind} {
		if err := w.served(gk); err != nil {
			w.t.Fatal(err)
		}
	}
	u := newObject(w.kind(widgetKind), w.namespaces[0], anchor)
	u.Object["spec"] = map[string]any{"size": int64(0)}
	if _, err := w.m.Writer().Create(w.ctx, w.kind(widgetKind), u); err != nil {
		w.t.Fatal(err)
	}
}

// served waits until a kind that was made is there.
func (w *workload) served(gk object.GroupKind) error {
	return w.until(func() (bool, error) {
		var err error
		if w.kinds, err = w.m.Reader().Kinds(w.ctx); err != nil {
			return false, err
		}
		k, ok := kube.FindKind(w.kinds, gk)
		if !ok {
			return false, nil
		}
		_, err = w.m.Reader().List(w.ctx, k, kube.ListOptions{Limit: 1},
			func([]byte) error { return nil })
		return err == nil, nil
	})
}

// labelKind changes the metadata of a kind: so that nothing is said of it, or so that it is of
// another provider, or so that it does not belong to Cluster API any more, or again.
func (w *workload) labelKind() error {
	crd, err := w.m.Reader().Get(w.ctx, crdKind, "", "widgets."+randomGroup)
	if err != nil {
		return err
	}
	metadata := map[string]any{}
	switch _, has := crd.GetLabels()[contractLabel]; {
	case !has:
		metadata["labels"] = map[string]any{contractLabel: "v1"}
	case w.rand.IntN(4) == 0:
		metadata["labels"] = map[string]any{contractLabel: nil}
	case w.rand.IntN(2) == 0:
		metadata["labels"] = map[string]any{"cluster.x-k8s.io/provider": "infrastructure-" + w.number()}
	default:
		metadata["annotations"] = map[string]any{randomGroup + "/touched": w.number()}
	}
	if _, err := w.m.Writer().PatchMetadata(w.ctx, crdKind, "", crd.GetName(), metadata); err != nil {
		return err
	}
	return w.served(widgetKind)
}

// upgradeKind gives Widgets another schema, which shows in all of them without a write to any, and
// perhaps serves or stores another version.
func (w *workload) upgradeKind() error {
	crd, err := w.m.Reader().Get(w.ctx, crdKind, "", "widgets."+randomGroup)
	if err != nil {
		return err
	}
	w.revision++
	next := customKind(widgetKind, "Namespaced", w.revision)
	was, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	versions, _, _ := unstructured.NestedSlice(next.Object, "spec", "versions")
	second := was[1].(map[string]any)
	served, stored := second["served"].(bool), second["storage"].(bool)
	switch w.rand.IntN(3) {
	case 0:
		stored = served && !stored
	case 1:
		served = !served || stored
	}
	for i, v := range versions {
		v.(map[string]any)["served"] = i == 0 || served
		v.(map[string]any)["storage"] = (i == 1) == stored
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		return err
	}
	if err := w.update(crdKind, crd); err != nil {
		return err
	}
	return w.until(func() (bool, error) {
		if w.kinds, err = w.m.Reader().Kinds(w.ctx); err != nil {
			return false, err
		}
		u, err := w.m.Reader().Get(w.ctx, w.kind(widgetKind), w.namespaces[0], anchor)
		if err != nil {
			return false, nil // the API server is at it
		}
		spec, _, _ := unstructured.NestedMap(u.Object, "spec")
		return spec[field(w.revision)] != nil && spec[field(w.revision-1)] == nil, nil
	})
}

// comeOrGo makes the other kind, takes it away with all its objects, or both, which is another kind
// that seems the same.
func (w *workload) comeOrGo() error {
	_, there := kube.FindKind(w.kinds, gizmoKind)
	if there {
		if err := w.removeKind(gizmoKind); err != nil {
			return err
		}
		w.remade = true
		if w.rand.IntN(2) == 0 {
			return nil
		}
	}
	scope := "Namespaced"
	if w.rand.IntN(6) == 0 {
		scope = "Cluster"
	}
	if _, err := w.m.Writer().Create(w.ctx, crdKind, customKind(gizmoKind, scope, 0)); err != nil {
		return err
	}
	if err := w.served(gizmoKind); err != nil {
		return err
	}
	for i := range 2 { // of the same names each time
		k := w.kind(gizmoKind)
		u := newObject(k, "", fmt.Sprintf("gizmo-%d", i))
		if k.Namespaced {
			u.SetNamespace(w.namespaces[0])
		}
		u.Object["spec"] = map[string]any{"size": int64(i)}
		if _, err := w.m.Writer().Create(w.ctx, k, u); err != nil {
			return err
		}
	}
	return nil
}

// removeKind deletes a kind, and waits until it is gone; a finalizer would block the deletion.
func (w *workload) removeKind(gk object.GroupKind) error {
	name := plurals[gk] + "." + gk.Group
	crd, err := w.m.Reader().Get(w.ctx, crdKind, "", name)
	if err != nil {
		return err
	}
	for range 1000 {
		k, u, err := w.pick(isHeld, gk)
		if errors.Is(err, errNothing) {
			break
		}
		if err == nil {
			u.SetFinalizers(nil)
			err = w.update(k, u)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	if err := w.m.Writer().Delete(w.ctx, crdKind, "", name, crd.GetUID(), ""); err != nil {
		return err
	}
	return w.until(func() (bool, error) {
		if w.kinds, err = w.m.Reader().Kinds(w.ctx); err != nil {
			return false, err
		}
		_, err := w.m.Reader().Get(w.ctx, crdKind, "", name)
		return apierrors.IsNotFound(err), nil
	})
}
