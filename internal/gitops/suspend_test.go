package gitops

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func ownerObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	_, raws := documents(t, text)
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raws[0], &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetUID("u1")
	return u
}

// TestASwitchIsGivenBackAsItWas for the switch of each kind: a flag, an annotation, a word, and a
// part of the spec that is absent while the owner is suspended.
func TestASwitchIsGivenBackAsItWas(t *testing.T) {
	for _, text := range []string{
		apps,
		apps + "spec: {suspend: false, prune: true}\n",
		"apiVersion: fluxcd.controlplane.io/v1\nkind: ResourceSet\nmetadata: {name: a, namespace: b}\n",
		"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a, namespace: b}\n" +
			"spec: {project: default, syncPolicy: {automated: {prune: true, selfHeal: true}}}\n",
		"apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: a, namespace: b}\n" +
			"spec: {syncPolicy: {applicationsSync: sync}}\n",
		"apiVersion: fleet.cattle.io/v1alpha1\nkind: GitRepo\nmetadata: {name: a, namespace: b}\n",
		"apiVersion: k0rdent.mirantis.com/v1beta1\nkind: ClusterDeployment\n" +
			"metadata: {name: a, namespace: b}\nspec: {dryRun: false}\n",
	} {
		u := ownerObject(t, text)
		was, suspended, err := ReadSwitch(u)
		if err != nil || suspended {
			t.Fatalf("%s: suspended %v, %v", text, suspended, err)
		}
		if err := SetSwitch(u); err != nil {
			t.Fatal(err)
		}
		if _, suspended, err = ReadSwitch(u); err != nil || !suspended {
			t.Errorf("%s: not suspended, %v", text, err)
		}
		own(u)
		if changed, err := ResetSwitch(u, was); err != nil || !changed {
			t.Errorf("%s: changed %v, %v", text, changed, err)
		}
		again, suspended, err := ReadSwitch(u)
		if err != nil || suspended || string(again.Was) != string(was.Was) {
			t.Errorf("%s: given back as %s, was %s, %v", text, again.Was, was.Was, err)
		}
	}
}

// own writes managedFields as the API server does after our update.
func own(u *unstructured.Unstructured) {
	row, _, _ := rowOfObject(u)
	fields := map[string]any{}
	at := fields
	for _, part := range row.path {
		next := map[string]any{}
		at["f:"+part] = next
		at = next
	}
	_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"manager": "mgmtd",
		"operation": "Update", "fieldsV1": fields}}, "metadata", "managedFields")
}

// TestASwitchThatSomebodyElseWroteIsLeft: a user who suspends an owner, too, wants it so.
func TestASwitchThatSomebodyElseWroteIsLeft(t *testing.T) {
	was := Switch{UID: "u1"}
	for name, text := range map[string]string{
		"resumed":             apps + "spec: {suspend: false}\n",
		"suspended by a user": apps + by("flux") + "spec: {suspend: true}\n",
	} {
		if changed, err := ResetSwitch(ownerObject(t, text), was); changed || err != nil {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
	}
	other := ownerObject(t, apps+by("mgmtd")+"spec: {suspend: true}\n")
	other.SetUID("u2")
	if changed, err := ResetSwitch(other, was); changed || err != nil {
		t.Errorf("made again: changed %v, %v", changed, err)
	}
}

func TestAnOwnerIsBusyWhileItsToolAppliesItsObjects(t *testing.T) {
	for text, want := range map[string]bool{
		apps: false,
		apps + "status: {conditions: [{type: Reconciling, status: \"True\"}]}\n": true,
		"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\n" +
			"status: {operationState: {phase: Running}}\n": true,
	} {
		if got := Busy(ownerObject(t, text)) != ""; got != want {
			t.Errorf("%s: busy %v", text, got)
		}
	}
}
