package equality

import (
	"encoding/json"
	"testing"
)

// FuzzDifferences: an object is equal to itself, and what differs one way round differs the other.
func FuzzDifferences(f *testing.F) {
	object := []byte(`{"metadata":{"name":"a","uid":"u","managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:spec":{"k:{\"uid\":\"v\"}":{}}}}],"ownerReferences":[{"uid":"v","kind":"A","name":"b"}]},` +
		`"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"x"},{"type":"Paused"}],"observedGeneration":3}}`)
	f.Add(object, []byte(`{"metadata":{"name":"a"},"status":{"conditions":[1,null,{"type":2}]}}`))
	f.Add([]byte(`{"a":1}`), []byte(`{"a":1.0}`))
	f.Add([]byte(`{"metadata":{"managedFields":[{}],"ownerReferences":[{}]}}`),
		[]byte(`{"metadata":null}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var one, other map[string]any
		if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
			return
		}
		if d := Differences(nil, one, one, All); len(d) > 0 {
			t.Errorf("%s differs from itself: %v", a, d)
		}
		if there, back := Differences(nil, one, other, All),
			Differences(nil, other, one, All); (len(there) > 0) != (len(back) > 0) {
			t.Errorf("%v one way, %v the other", there, back)
		}
	})
}
