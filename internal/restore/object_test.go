package restore

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func decoded(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestWithStatusMapsGenerationsAndLeavesPaused(t *testing.T) {
	source := decoded(t, `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine",
		"metadata":{"name":"a","generation":5},"status":{"observedGeneration":5,
		"conditions":[{"type":"Ready","status":"True","observedGeneration":5},{"type":"Old",
			"status":"True","observedGeneration":4},{"type":"Paused","status":"False",
				"observedGeneration":5}]}}`)
	for _, tt := range []struct {
		name      string
		live      int64
		conds     string
		ready     any
		old       any
		pausedWas string
	}{
		{"fresh", 1, `[]`, int64(1), nil, ""},
		{"touched", 3, `[{"type":"Paused","status":"True","observedGeneration":3}]`, int64(3), int64(2),
			"True"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live := decoded(t, `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine",
				"metadata":{"name":"a"},"status":{"conditions":`+tt.conds+`}}`)
			live.SetGeneration(tt.live)
			got := withStatus(live, source)
			conditions := sliceOf(got.Object, "status", "conditions")
			if g := condition(conditions, "Ready")["observedGeneration"]; g != tt.ready {
				t.Errorf("Ready observed %v, want %v", g, tt.ready)
			}
			if g := condition(conditions, "Old")["observedGeneration"]; g != tt.old {
				t.Errorf("Old observed %v, want %v", g, tt.old)
			}
			paused := condition(conditions, "Paused")
			if tt.pausedWas == "" && paused != nil || tt.pausedWas != "" &&
				(paused == nil || paused["status"] != tt.pausedWas) {
				t.Errorf("Paused %v", paused)
			}
			if observed, _, _ := unstructured.NestedInt64(got.Object, "status",
				"observedGeneration"); observed != tt.live {
				t.Errorf("observed %d of %d", observed, tt.live)
			}
		})
	}
}

// TestWithStatusLeavesPausedInTheListOfItsContract: the target's controllers publish Paused in one
// list of conditions, whether the source's did or not.
func TestWithStatusLeavesPausedInTheListOfItsContract(t *testing.T) {
	const (
		machine = `{"apiVersion":"cluster.x-k8s.io/v1beta1","kind":"Machine","metadata":{"name":"a"},
			"status":`
		paused = `{"conditions":[{"type":"Paused","status":"True"}]}`
	)
	for name, status := range map[string]string{
		"both publish it": `{"conditions":[{"type":"Ready","status":"True"}],
			"v1beta2":{"conditions":[{"type":"Ready","status":"True"},{"type":"Paused","status":"False"}]}}`,
		"a source that is older than 1.9": `{"conditions":[{"type":"Ready","status":"True"}]}`,
		"a source without conditions":     `{"phase":"Running"}`,
	} {
		got := withStatus(decoded(t, machine+`{"v1beta2":`+paused+`}}`), decoded(t, machine+status+`}`))
		list := sliceOf(got.Object, "status", "v1beta2", "conditions")
		if c := condition(list, "Paused"); c == nil || c["status"] != "True" {
			t.Errorf("%s: v1beta2 has %v", name, list)
		}
		if c := condition(sliceOf(got.Object, "status", "conditions"), "Paused"); c != nil {
			t.Errorf("%s: Paused is in both lists", name)
		}
	}
}

// TestMovedFieldsAreNotThoseOfOurPauses: on a copy they would say that it was paused, or released,
// since it was created, so that a rollback from marks would leave it.
func TestMovedFieldsAreNotThoseOfOurPauses(t *testing.T) {
	const machine = `{"manager":"m","operation":"Update","fieldsV1":{"f:spec":{"f:paused":{}}}}`
	source := decoded(t, `{"apiVersion":"v1","kind":"Cluster","metadata":{"name":"a","managedFields":[
		`+machine+`,
		{"manager":"mgmtd","operation":"Update","fieldsV1":{"f:spec":{"f:paused":{}},
			"f:metadata":{"f:annotations":{".":{},"f:mgmtd.dev/was-paused":{},"f:mgmtd.dev/epoch":{},
				"f:mgmtd.dev/operation":{},"f:cluster.x-k8s.io/paused":{}}}}},
		{"manager":"mgmtd","operation":"Update","fieldsV1":{"f:spec":{"f:paused":{},"f:text":{}},
			"f:metadata":{"f:annotations":{".":{},"f:mgmtd.dev/workload-id":{},
				"f:mgmtd.dev/fenced":{}}}}}]}}`)
	before := source.DeepCopy()
	want := decoded(t, `{"apiVersion":"v1","kind":"Cluster","metadata":{"name":"a","managedFields":[
		`+machine+`,
		{"manager":"mgmtd","operation":"Update","fieldsV1":{"f:spec":{"f:text":{}},
			"f:metadata":{"f:annotations":{".":{},"f:mgmtd.dev/workload-id":{}}}}}]}}`)
	if got := movedFields(source, source); !reflect.DeepEqual(got, managedFields(want)) {
		t.Errorf("%v", got)
	}
	if !reflect.DeepEqual(source, before) {
		t.Error("the source is changed")
	}
}

func TestMovedFieldsFollowOwners(t *testing.T) {
	source := decoded(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a",
		"ownerReferences":[{"apiVersion":"x/v1","kind":"O","name":"o","uid":"old-uid"}],
		"managedFields":[{"manager":"m","operation":"Apply",
			"fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"old-uid\"}":{}}}}}]}}`)
	live := decoded(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a",
		"ownerReferences":[{"apiVersion":"x/v1","kind":"O","name":"o","uid":"new-uid"}]}}`)
	fields := withManagedFields(live, movedFields(source, live)).GetManagedFields()
	const want = `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"new-uid\"}":{}}}}`
	if raw := fields[0].FieldsV1.GetRawString(); raw != want {
		t.Errorf("fields %s", raw)
	}
	if again := movedFields(source, source); !reflect.DeepEqual(again, managedFields(source)) {
		t.Errorf("the source has the fields %v now", again)
	}
}
