package snapshot

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/capi"
)

// TestForKubectlLeavesTheSourceBehind: nothing is left that another API server refuses, or that its
// garbage collector acts upon, and a Cluster is paused (invariant I1).
func TestForKubectlLeavesTheSourceBehind(t *testing.T) {
	const metadata = `{"name":"a","namespace":"ns","labels":{"l":"v"},"annotations":{"n":"v"},` +
		`"finalizers":["f"],"uid":"u","resourceVersion":"7","generation":3,` +
		`"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-01T00:00:00Z",` +
		`"deletionGracePeriodSeconds":0,"selfLink":"/x","managedFields":[{}],` +
		`"ownerReferences":[{"uid":"o"}]}`
	const left = `{"annotations":{"n":"v"},"finalizers":["f"],"labels":{"l":"v"},"name":"a",` +
		`"namespace":"ns"}`
	for _, tt := range []struct{ kind, more, want string }{
		{"ConfigMap", `"data":{"k":12345678901234567}`, `{"data":{"k":12345678901234567},` +
			`"kind":"ConfigMap","metadata":` + left + `}`},
		{"Cluster", `"spec":{"paused":false,"topology":{"x":1}}`, `{"kind":"Cluster","metadata":` +
			left + `,"spec":{"paused":true,"topology":{"x":1}}}`},
		{"Cluster", `"spec":null`, `{"kind":"Cluster","metadata":` + left + `,"spec":{"paused":true}}`},
	} {
		gk := capi.Cluster
		gk.Kind = tt.kind
		got, err := ForKubectl(gk, []byte(`{"kind":"`+tt.kind+`","metadata":`+metadata+`,`+tt.more+
			`,"status":{"s":1}}`))
		if diff := cmp.Diff(tt.want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", tt.kind, err, diff)
		}
	}
	for _, text := range []string{`hidden`, `["hidden"]`, `{"metadata":"hidden"}`,
		`{"metadata":{},"spec":"hidden"}`} {
		got, err := ForKubectl(capi.Cluster, []byte(text))
		if err == nil || strings.Contains(err.Error(), "hidden") || got != nil {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
