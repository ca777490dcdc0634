package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// errorsOf returns the findings of a plan that block something, as "unit: code".
func errorsOf(p *Plan) (texts []string) {
	for _, f := range p.Findings {
		if f.Severity >= object.Error {
			texts = append(texts, f.Unit+": "+string(f.Code))
		}
	}
	slices.Sort(texts)
	return texts
}

// conversionFailure is how the API server answers while a conversion webhook is down.
var conversionFailure = metav1.Status{Code: 500, Status: metav1.StatusFailure,
	Message: "conversion webhook for cluster.x-k8s.io/v1beta1, Kind=Machine failed: it is " +
		"not there"}

// TestAKindThatCannotBeListedIsAFinding: the conversion webhook of one kind is down. The units with
// objects of the kind are blocked, and all other findings come, too.
func TestAKindThatCannotBeListedIsAFinding(t *testing.T) {
	machine := func(name, version string) string {
		return fmt.Sprintf(`{"kind":"Machine","metadata":{"namespace":"one","name":%q,
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"Cluster","name":"w"}]},
			"spec":{"clusterName":"w","version":%q}}`, name, version)
	}
	down := &apierrors.StatusError{ErrStatus: conversionFailure}
	for _, tt := range []struct {
		name string
		kind string
		err  error
		want []string
	}{
		{"a kind of one unit", "Machine", down, []string{"one/w: webhook-down", "two/w: exists-different"}},
		{"a kind that we may not list", "Machine", apierrors.NewForbidden(resourceOf(memoryKinds[5]), "",
			nil), []string{"one/w: not-allowed", "two/w: exists-different"}},
		{"a kind of nobody", "MachineHealthCheck", down, []string{"two/w: exists-different"}},
	} {
		target := newMemory(t, "target", `{"kind":"Namespace","metadata":{"name":"two",
			"labels":{"team":"two"},"annotations":{"cattle.io/status":"old"}}}`,
			`{"kind":"ClusterClass","metadata":{"namespace":"two","name":"class"},"spec":{"text":"other"}}`)
		if tt.kind == "Machine" { // it differs, and is not compared: a first page has shown it
			shown := newMemory(t, "shown", machine("first-page", "v1.2.3"))
			maps.Copy(target.objects, shown.objects)
		}
		source := twoTenantsOwning(t, machine("first-page", "v1.2.2"), machine("m", "v1.2.2"))
		source.set(t, "ClusterClass.cluster.x-k8s.io/two/class", func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"text": "as it was"}
		})
		x := newTrial(t, source, target)
		target.refuseList = func(k kube.Kind) error {
			if k.Kind == tt.kind {
				return fmt.Errorf("list: %w", tt.err)
			}
			return nil
		}
		p := x.makePlan(t)
		if got := errorsOf(p); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
			return strings.Contains(f.Message, "cannot list "+tt.kind)
		}) {
			t.Errorf("%s: findings %v", tt.name, p.Findings)
		}
	}
}

// TestTwoWorkloadClustersHaveNotOneID: they would share one ownership record.
func TestTwoWorkloadClustersHaveNotOneID(t *testing.T) {
	source := twoTenants(t)
	for _, ns := range []string{"one", "two"} {
		source.set(t, "Cluster.cluster.x-k8s.io/"+ns+"/w", func(u *unstructured.Unstructured) {
			capi.Annotate(u.Object, capi.AnnotationWorkloadID, "copied")
		})
	}
	got := errorsOf(newTrial(t, source, newMemory(t, "target")).makePlan(t))
	if !slices.Equal(got, []string{"two/w: id-not-unique"}) {
		t.Errorf("got %q", got)
	}
}

// TestThePlanOfABatchListsItsNamespaces: most objects of the target of a move are of the batches
// before. The Clusters of all namespaces count, as an object may attach to them.
func TestThePlanOfABatchListsItsNamespaces(t *testing.T) {
	target := newMemory(t, "target")
	var mu sync.Mutex
	listed := map[string][]string{} // namespaces, by kind
	target.onList = func(k kube.Kind, o kube.ListOptions) {
		mu.Lock()
		defer mu.Unlock()
		listed[k.Kind] = o.Namespaces
	}
	x := newTrial(t, twoTenants(t), target)
	for _, tt := range []struct{ only, want []string }{
		{nil, nil}, {[]string{"one/w", "two/w"}, []string{"one", "two"}},
	} {
		clear(listed)
		x.spec.Only = tt.only
		x.makePlan(t)
		for _, kind := range []string{"Machine", "ClusterClass", "Secret", "MachineHealthCheck"} {
			if got, listed := listed[kind]; !listed || !slices.Equal(got, tt.want) {
				t.Errorf("%q: %s is listed in %q (%v)", tt.only, kind, got, listed)
			}
		}
		if got, listed := listed["Cluster"]; !listed || got != nil {
			t.Errorf("%q: Clusters are listed in %q (%v)", tt.only, got, listed)
		}
	}
}

// TestThePlanOfABatchListsByLabel: a namespace may have many workload clusters. Kinds of which an
// object has no label are listed whole: it would be taken for one that the target does not have.
func TestThePlanOfABatchListsByLabel(t *testing.T) {
	const machine = `{"kind":"Machine","metadata":{"namespace":"one","name":%q,
		"labels":{"cluster.x-k8s.io/cluster-name":"w"}},"spec":{"clusterName":"w"}}`
	source := twoTenants(t, fmt.Sprintf(machine, "m"),
		`{"kind":"MachineHealthCheck","metadata":{"namespace":"one","name":"c"},
			"spec":{"clusterName":"w"}}`,
		`{"kind":"DevCluster","metadata":{"namespace":"one","name":"w","labels":{
			"cluster.x-k8s.io/cluster-name":"old"},"ownerReferences":[{"kind":"Cluster","name":"w"}]}}`)
	target := newMemory(t, "target", fmt.Sprintf(machine, "left-behind"))
	var mu sync.Mutex
	selected := map[string]string{} // by kind
	target.onList = func(k kube.Kind, o kube.ListOptions) {
		mu.Lock()
		defer mu.Unlock()
		if o.Metadata && o.Limit == 0 {
			selected[k.Kind] = o.Labels
		}
	}
	for _, tt := range []struct {
		only []string
		want string
	}{{nil, ""}, {[]string{"one/w"}, "cluster.x-k8s.io/cluster-name in (old,w)"}} {
		clear(selected)
		x := newTrial(t, source, target)
		x.spec.Only = tt.only
		got := errorsOf(x.makePlan(t))
		for kind, want := range map[string]string{"Machine": tt.want, "DevCluster": tt.want,
			"MachineHealthCheck": "",
			"ClusterClass":       "", "Cluster": ""} {
			if of, listed := selected[kind]; !listed || of != want {
				t.Errorf("%q: %s is listed by label %q (%v)", tt.only, kind, of, listed)
			}
		}
		if !slices.Contains(got, "one/w: extra-on-target") {
			t.Errorf("%q: got %q", tt.only, got)
		}
	}
}
