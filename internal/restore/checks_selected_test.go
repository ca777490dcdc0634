package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// selecting returns an object in namespace n that selects Clusters, with more metadata.
func selecting(kind, name, selector, more string) string {
	return fmt.Sprintf(`{"kind":%q,"metadata":{"namespace":"n","name":%q%s},
		"spec":{"clusterSelector":%s}}`, kind, name, more, selector)
}

const (
	selectedCluster = `{"kind":"Cluster","metadata":{"namespace":"n","name":%q,
		"labels":{"cni":"yes","stage":"prod"}},"spec":{}}`
	selectsCNI = `{"matchLabels":{"cni":"yes"}}`
)

// selectedTrial is a restore of the workload clusters n/w and n/v, which have equal labels.
func selectedTrial(t *testing.T, source, target []string) *trial {
	t.Helper()
	source = append([]string{needsNamespace, fmt.Sprintf(selectedCluster, "w"),
		fmt.Sprintf(selectedCluster, "v")}, source...)
	return newTrial(t, newMemory(t, "source", source...), newMemory(t, "target", target...))
}

// TestI1WhatTheTargetHasAndSelectsACopyIsReported: a ClusterResourceSet of the target applies its
// manifests through the kubeconfig of a paused copy.
func TestI1WhatTheTargetHasAndSelectsACopyIsReported(t *testing.T) {
	const set, proxy = "ClusterResourceSet", "HelmChartProxy"
	reported := func(kind, name string) (lines []string) {
		for _, unit := range []string{"n/v", "n/w"} {
			lines = append(lines, fmt.Sprintf("warning target-selects "+
				"%s.addons.cluster.x-k8s.io/n/%s %s", kind, name, unit))
		}
		return lines
	}
	const otherNamespace = `{"kind":"Namespace","metadata":{"name":"m"}}`
	elsewhere := strings.ReplaceAll(selecting(set, "a", selectsCNI, ""), `"n"`, `"m"`)
	for _, tt := range []struct {
		name           string
		source, target []string
		want           []string
	}{
		{"by labels", nil, []string{selecting(set, "a", selectsCNI, "")}, reported(set, "a")},
		{"of another kind", nil, []string{selecting(proxy, "a", selectsCNI, "")},
			reported(proxy, "a")},
		{"by expressions", nil, []string{selecting(set, "a", `{"matchExpressions":[{"key":"stage",
			"operator":"In","values":["prod"]}]}`, "")}, reported(set, "a")},
		{"in a way that cannot be read", nil, []string{selecting(set, "a", `"junk"`, "")},
			reported(set, "a")},
		{"other labels", nil, []string{selecting(set, "a", `{"matchLabels":{"cni":"no"}}`, "")}, nil},
		{"paused", nil, []string{selecting(set, "a", selectsCNI,
			`,"annotations":{"cluster.x-k8s.io/paused":""}`)}, nil},
		{"being deleted", nil, []string{selecting(set, "a", selectsCNI,
			`,"deletionTimestamp":"2026-11-22T12:00:00Z"`)}, nil},
		{"in another namespace", nil, []string{otherNamespace, elsewhere}, nil},
		{"in the plan", []string{selecting(set, "a", selectsCNI, "")},
			[]string{selecting(set, "a", selectsCNI, "")}, nil},
		{"left out of the plan, since it differs", []string{selecting(set, "a", selectsCNI, "")},
			[]string{selecting(set, "a", `{"matchLabels":{"stage":"prod"}}`, "")},
			reported(set, "a")},
		{"and one Cluster is there", nil, []string{fmt.Sprintf(selectedCluster, "v"),
			selecting(set, "a", selectsCNI, "")}, reported(set, "a")[1:]},
	} {
		x := selectedTrial(t, tt.source, append([]string{needsNamespace}, tt.target...))
		p := x.makePlan(t)
		if got := findings(p, object.CodeTargetSelects); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if p.Blocked {
			t.Errorf("%s: the plan is blocked: %v", tt.name, p.Findings)
		}
	}
}

// TestWhatSelectsCopiesIsListedOnce: one LIST for each kind, by the plan of the whole operation
// alone, and none where nothing can be.
func TestWhatSelectsCopiesIsListedOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		only   []string
		target []string
		want   []string
	}{
		{"of everything", nil, []string{needsNamespace},
			[]string{"ClusterResourceSet [n]", "HelmChartProxy [n]"}},
		{"of a batch", []string{"n/w"}, []string{needsNamespace}, nil},
		{"into an empty target", nil, []string{`{"kind":"Namespace","metadata":{"name":"m"}}`},
			nil},
		{"of what is there", nil, []string{needsNamespace, fmt.Sprintf(selectedCluster, "v"),
			fmt.Sprintf(selectedCluster, "w")}, nil},
	} {
		x := selectedTrial(t, nil, append(tt.target,
			selecting("ClusterResourceSet", "a", selectsCNI, "")))
		x.spec.Only = tt.only
		var lists []string
		x.target.onList = func(k kube.Kind, o kube.ListOptions) {
			// No other check reads these kinds whole, and this one runs alone.
			if k.Group == "addons.cluster.x-k8s.io" && !o.Metadata {
				lists = append(lists, fmt.Sprint(k.Kind, " ", o.Namespaces))
			}
		}
		p := x.makePlan(t)
		slices.Sort(lists)
		if !slices.Equal(lists, tt.want) {
			t.Errorf("the plan %s: lists %q, want %q", tt.name, lists, tt.want)
		}
		if got := findings(p, object.CodeTargetSelects); len(got) > 0 != (len(tt.want) > 0) {
			t.Errorf("the plan %s: %q", tt.name, got)
		}
	}
}

// TestWhatSelectsCopiesAndCannotBeListedIsNotPassedOver: it is a finding where one kind is refused,
// and otherwise no plan is made.
func TestWhatSelectsCopiesAndCannotBeListedIsNotPassedOver(t *testing.T) {
	broken := errors.New("broken off")
	for _, tt := range []struct {
		err  error
		want string // a warning
	}{
		{broken, ""},
		{apierrors.NewForbidden(resourceOf(kube.Kind{}), "", nil), "warning not-allowed"},
		{&apierrors.StatusError{ErrStatus: conversionFailure}, "warning webhook-down"},
	} {
		x := selectedTrial(t, nil, []string{needsNamespace})
		var whole atomic.Bool
		x.target.onList = func(k kube.Kind, o kube.ListOptions) {
			whole.Store(k.Kind == "ClusterResourceSet" && !o.Metadata)
		}
		x.target.refuseList = func(k kube.Kind) error {
			if k.Kind == "ClusterResourceSet" && whole.Load() {
				return fmt.Errorf("list: %w", tt.err)
			}
			return nil
		}
		p, err := NewPlan(t.Context(), Input{Snapshot: x.snapshot, Contents: x.contents,
			Source: Snapshot{ID: "s", Source: object.Side{UID: "source"}, Time: time.Now()},
			Target: object.Side{Name: "target", UID: x.target.uid}, Reader: x.target,
			Prober: x.target, Kinds: x.target.kinds, Spec: x.spec})
		if tt.want == "" {
			if !errors.Is(err, broken) {
				t.Errorf("%v: the plan has error %v", tt.err, err)
			}
			continue
		}
		if err != nil || p.Blocked {
			t.Fatalf("%v: %v", tt.err, err)
		}
		if !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
			return f.Severity.String()+" "+string(f.Code) == tt.want &&
				strings.HasSuffix(f.Message, "whether one selects a workload cluster of the plan "+
					"is not known")
		}) {
			t.Errorf("%v: findings %v", tt.err, p.Findings)
		}
	}
}
