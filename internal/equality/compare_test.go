package equality

import (
	"slices"
	"testing"
)

func TestCompareTellsWhatIsLostFromWhatWasAdded(t *testing.T) {
	tests := []struct {
		name, want, got string
		aspect          Aspect
		lost, added     []string
	}{
		{"a defaulted field", `{"spec":{"a":1}}`, `{"spec":{"a":1,"b":{"c":2}}}`, Values, nil,
			[]string{"spec.b"}},
		{"a label, an annotation and a finalizer more",
			`{"metadata":{"labels":{"l":"1"},"finalizers":["f"]}}`,
			`{"metadata":{"labels":{"l":"1","m":"2"},"annotations":{"n":"3"},"finalizers":["e","f"]}}`,
			Values, nil, []string{"metadata.annotations", "metadata.finalizers[0]", "metadata.labels.m"}},
		{"what a conversion stores of the other version, gone",
			`{"metadata":{"annotations":{"cluster.x-k8s.io/conversion-data":"x"}}}`, `{"metadata":{}}`,
			Values, nil, nil},
		{"what a conversion stores of the other version, new", `{"metadata":{}}`,
			`{"metadata":{"annotations":{"cluster.x-k8s.io/conversion-data":"x"}}}`, Values, nil, nil},
		{"a finalizer less", `{"metadata":{"finalizers":["e","f"]}}`, `{"metadata":{"finalizers":["f"]}}`,
			Values, []string{"metadata.finalizers[0]"}, nil},
		{"an owner more", `{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"2"},{"kind":"B","name":"b","uid":"3"}]}}`,
			Values, nil, []string{"metadata.ownerReferences[1]"}},
		{"an owner at another version",
			`{"metadata":{"ownerReferences":[{"apiVersion":"x/v1beta1","kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"x/v1beta2","kind":"A","name":"a","uid":"2"}]}}`,
			Values, nil, nil},
		{"another owner", `{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"b","uid":"1"}]}}`, Values,
			[]string{"metadata.ownerReferences[0]"}, []string{"metadata.ownerReferences[0]"}},
		{"a changed value", `{"spec":{"a":{"b":1}}}`, `{"spec":{"a":{"b":2}}}`, Values,
			[]string{"spec.a.b"}, nil},
		{"a lost value", `{"status":{"nodeRef":{"name":"n","uid":"u"}}}`,
			`{"status":{"nodeRef":{"name":"n"}}}`, Values, []string{"status.nodeRef.uid"}, nil},
		{"false is not absent", `{"spec":{"paused":false}}`, `{"spec":{}}`, Values,
			[]string{"spec.paused"}, nil},
		{"an empty value that is left out", `{"spec":{"a":{},"b":[],"c":null},"status":{"d":{}}}`, `{}`,
			Values, nil, nil},
		{"an empty struct that was added", `{"spec":{}}`, `{"spec":{"a":{"b":{},"c":[]},"d":{"e":1}}}`,
			Values, nil, []string{"spec.d"}},
		{"an empty value that was filled", `{"spec":{"a":{}}}`, `{"spec":{"a":{"b":1}}}`, Values, nil,
			[]string{"spec.a.b"}},
		{"null that was filled", `{"spec":{"a":null}}`, `{"spec":{"a":1}}`, Values, nil,
			[]string{"spec.a"}},
		{"an empty text that was filled", `{"spec":{"a":""}}`, `{"spec":{"a":"b"}}`, Values,
			[]string{"spec.a"}, nil},
		{"an element more in a list of the spec", `{"spec":{"a":[1]}}`, `{"spec":{"a":[1,2]}}`, Values,
			[]string{"spec.a"}, nil},
		{"a defaulted field in an element", `{"spec":{"a":[{"b":1}]}}`, `{"spec":{"a":[{"b":1,"c":2}]}}`,
			Values, nil, []string{"spec.a[0].c"}},
		{"a new condition", `{"status":{"conditions":[{"type":"A","status":"True"}]}}`,
			`{"status":{"conditions":[{"type":"B","status":"True"},{"type":"A","status":"True"}]}}`, Values,
			nil, []string{"status.conditions.B"}},
		{"a lost condition", `{"status":{"conditions":[{"type":"A","status":"True"}]}}`, `{"status":{}}`,
			Values, []string{"status.conditions.A.status"}, nil},
		{"a lost map", `{"spec":{"a":{"b":1,"c":{"d":2},"e":{}}}}`, `{"spec":{}}`, Values,
			[]string{"spec.a.b", "spec.a.c.d"}, nil},
		{"status left out", `{"status":{"a":1}}`, `{"status":{"a":2}}`, Spec, nil, nil},
		{"managedFields never count",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:spec":{"f:a":{}}}}]},"spec":{"a":1}}`,
			`{"metadata":{},"spec":{"a":1}}`, All, nil, nil},
		{"1 and 1.0", `{"spec":{"a":1}}`, `{"spec":{"a":1.0}}`, Values, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Compare(nil, decode(t, tt.want), decode(t, tt.got), tt.aspect)
			if !slices.Equal(c.Lost, tt.lost) || !slices.Equal(c.Added, tt.added) {
				t.Errorf("lost %v, added %v; want %v and %v", c.Lost, c.Added, tt.lost, tt.added)
			}
			if same := Compare(nil, decode(t, tt.want), decode(t, tt.want), All); len(same.Lost)+
				len(same.Added) > 0 {
				t.Errorf("it deviates from itself: %v", same)
			}
		})
	}
}
