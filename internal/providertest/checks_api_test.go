//go:build api

package providertest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/object"
)

// coreSwitches are those of Cluster API's core and of kubeadm (cluster-api v1.14, util/paused), and
// of kinds of Kubernetes.
var coreSwitches = map[string]string{
	"Namespace": passive, "Secret": passive, "ConfigMap": passive,
	"Cluster.cluster.x-k8s.io":                                  "field spec.paused",
	"MachineDeployment.cluster.x-k8s.io":                        withCluster,
	"MachineSet.cluster.x-k8s.io":                               withCluster,
	"Machine.cluster.x-k8s.io":                                  withCluster,
	"MachinePool.cluster.x-k8s.io":                              withCluster,
	"KubeadmConfig.bootstrap.cluster.x-k8s.io":                  withCluster,
	"KubeadmConfigTemplate.bootstrap.cluster.x-k8s.io":          passive,
	"KubeadmControlPlane.controlplane.cluster.x-k8s.io":         withCluster,
	"IPAddressClaim.ipam.cluster.x-k8s.io":                      withCluster,
	"IPAddress.ipam.cluster.x-k8s.io":                           passive,
	"KubeadmControlPlaneTemplate.controlplane.cluster.x-k8s.io": passive,
}

func (g *graph) switchOf(t *testing.T, gk object.GroupKind) string {
	t.Helper()
	if how := g.Switches[gk.String()]; how != "" {
		return how
	}
	if coreSwitches[gk.String()] == "" {
		t.Fatalf("%s.yaml does not say what keeps controllers from working on a %s", g.name, gk)
	}
	return coreSwitches[gk.String()]
}

// notPaused says why controllers may work on a version of an object; "" when they do not. clusters
// are the Clusters that are there, by namespace and name.
func notPaused(u *unstructured.Unstructured, how string,
	clusters map[string]*unstructured.Unstructured) string {
	kind, rest, _ := strings.Cut(how, " ")
	switch kind {
	case passive:
		return ""
	case withCluster:
		cluster := clusters[clusterOf(u)]
		if cluster == nil {
			return fmt.Sprintf("its Cluster %s is not there", clusterOf(u))
		}
		return notPaused(cluster, "field spec.paused", nil)
	case "annotation":
		key, want, exact := strings.Cut(rest, "=")
		got, ok := u.GetAnnotations()[key]
		if !ok || exact && got != want {
			return fmt.Sprintf("annotation %s is %q", key, got)
		}
		return ""
	case "field":
		if on, _, _ := unstructured.NestedBool(u.Object, strings.Split(rest, ".")...); !on {
			return rest + " is not true"
		}
		return ""
	default:
		return "nothing pauses it"
	}
}

// clusterOf returns namespace/name of the Cluster by which controllers find the pause of an object:
// that of its label, its spec or its owner.
func clusterOf(u *unstructured.Unstructured) string {
	name := u.GetLabels()["cluster.x-k8s.io/cluster-name"]
	if name == "" {
		name, _, _ = unstructured.NestedString(u.Object, "spec", "clusterName")
	}
	for _, o := range u.GetOwnerReferences() {
		if name == "" && o.Kind == "Cluster" {
			name = o.Name
		}
	}
	return u.GetNamespace() + "/" + name
}

// checkWrites checks that no write of a restore without a release left an object that controllers
// work on, and that objects came in the order that the graph demands.
func (g *graph) checkWrites(t *testing.T, rec *recorder) {
	t.Helper()
	mine := map[object.Ref]bool{}
	for _, r := range g.refs() {
		mine[r] = true
	}
	clusters := map[string]*unstructured.Unstructured{}
	for _, u := range rec.versions {
		r := refOf(u)
		if r.GroupKind().String() == "Cluster.cluster.x-k8s.io" {
			clusters[r.Namespace+"/"+r.Name] = u
		}
		if !mine[r] {
			continue
		}
		if why := notPaused(u, g.switchOf(t, r.GroupKind()), clusters); why != "" {
			t.Errorf("a version of %s on the target is not paused: %s", r, why)
		}
	}
	g.checkOrder(t, rec)
}

// checkOrder checks the pairs of Before, as far as both were created: the first is there before
// controllers may work on the second, or, if nothing works on that, before it is created. Waves
// order owners alone, so that two objects of one owner come at once, paused.
func (g *graph) checkOrder(t *testing.T, rec *recorder) {
	t.Helper()
	atWork := g.firstAtWork(t, rec)
	for _, pair := range g.Before {
		var refs [2]object.Ref
		for i, text := range pair {
			r, err := object.ParseRef(text)
			if err != nil || !slices.Contains(g.refs(), r) {
				t.Fatalf("%s.yaml has no object %s: %v", g.name, text, err)
			}
			refs[i] = r
		}
		first, created := rec.created[refs[0]]
		second, found := atWork[refs[1]]
		if g.switchOf(t, refs[1].GroupKind()) == passive {
			second, found = rec.created[refs[1]]
		}
		if created && found && first > second {
			t.Errorf("%s was created after %s", pair[0], pair[1])
		}
	}
}

// firstAtWork returns the places of the first versions of objects on which controllers may work.
func (g *graph) firstAtWork(t *testing.T, rec *recorder) map[object.Ref]int {
	t.Helper()
	refs := g.refs()
	clusters, places := map[string]*unstructured.Unstructured{}, map[object.Ref]int{}
	for i, u := range rec.versions {
		r := refOf(u)
		if r.GroupKind().String() == "Cluster.cluster.x-k8s.io" {
			clusters[r.Namespace+"/"+r.Name] = u
		}
		if _, found := places[r]; found || !slices.Contains(refs, r) {
			continue
		}
		if notPaused(u, g.switchOf(t, r.GroupKind()), clusters) != "" {
			places[r] = i
		}
	}
	return places
}

// want is how a side has to have an object.
type want struct {
	absent bool
	// paused: the switches of the copy are set, so that metadata and spec are not compared.
	paused bool
}

// compare compares an object of a side with what was loaded.
func compare(t *testing.T, s *side, was *unstructured.Unstructured, w want) {
	t.Helper()
	r := refOf(was)
	got := s.get(t, r)
	switch {
	case got == nil && !w.absent:
		t.Errorf("%s is not there", r)
		return
	case got != nil && w.absent:
		t.Errorf("%s is there", r)
		return
	case got == nil:
		return
	}
	for _, o := range got.GetOwnerReferences() {
		gk := object.GroupKind{Kind: o.Kind}
		if group, _, ok := strings.Cut(o.APIVersion, "/"); ok {
			gk.Group = group
		}
		owner := object.Ref{Group: gk.Group, Kind: gk.Kind, Name: o.Name}
		if s.kind(t, gk).Namespaced {
			owner.Namespace = r.Namespace
		}
		if live := s.get(t, owner); live == nil || live.GetUID() != o.UID {
			t.Errorf("%s: its owner %s does not live", r, owner)
		}
	}
	if diff := cmp.Diff(essence(was, w.paused), essence(got, w.paused)); diff != "" {
		t.Errorf("%s differs (-was +is):\n%s", r, diff)
	}
}

// essence is what of an object has to be the same on both sides.
func essence(u *unstructured.Unstructured, paused bool) map[string]any {
	u = u.DeepCopy()
	status, _ := u.Object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	conditions = slices.DeleteFunc(conditions, func(c any) bool {
		return c.(map[string]any)["type"] == "Paused"
	})
	for _, c := range conditions {
		delete(c.(map[string]any), "observedGeneration")
	}
	if status != nil {
		delete(status, "conditions")
		if len(conditions) > 0 {
			status["conditions"] = conditions
		}
	}
	finalizers := u.GetFinalizers()
	slices.Sort(finalizers)
	var owners []string
	for _, o := range u.GetOwnerReferences() {
		owners = append(owners, fmt.Sprint(o.Kind, " ", o.Name, " ", o.Controller != nil && *o.Controller))
	}
	slices.Sort(owners)
	all := map[string]any{"finalizers": finalizers, "owners": owners, "data": u.Object["data"]}
	if len(status) > 0 {
		all["status"] = status
	}
	if !paused {
		annotations := u.GetAnnotations()
		for key := range annotations {
			if strings.HasPrefix(key, "mgmtd.dev/") && key != "mgmtd.dev/was-paused" &&
				key != "mgmtd.dev/operation" || key == blockMove {
				// The ids of the workload cluster, and what CAPZ sets while it is at work.
				delete(annotations, key)
			}
		}
		if len(annotations) > 0 {
			all["annotations"] = annotations
		}
		all["labels"], all["spec"] = u.GetLabels(), u.Object["spec"]
	}
	// The numbers of what was read from a file and of what a server sent are of different types.
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// everywhere are findings that say nothing of a provider: no workload cluster answers, nothing
// shows when the source was last alive, and the finalizers of providers that are not of Cluster API
// count as foreign.
var everywhere = []object.Code{object.CodeRealityUnknown, object.CodeSourceLastSeen,
	object.CodeSourceMayReturn, object.CodeForeignHold}

// findings are those of at least a warning that concern a graph, as "code ref" or "code unit".
func (g *graph) findings(all []object.Finding) []string {
	var texts []string
	for _, f := range all {
		if f.Severity < object.Warning || slices.Contains(everywhere, f.Code) || !g.concerns(f) {
			continue
		}
		about := f.Ref.String()
		if f.Ref.IsZero() {
			about = f.Unit
		}
		texts = append(texts, string(f.Code)+" "+about)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func (g *graph) concerns(f object.Finding) bool {
	if slices.Contains(g.refs(), f.Ref) {
		return true
	}
	return slices.ContainsFunc(g.Rows, func(r row) bool {
		unit := r.Namespace + "/" + r.Name
		return f.Unit == unit || slices.Contains(f.Users, unit)
	})
}
