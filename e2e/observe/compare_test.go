package observe

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

const base = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata:
  name: m
  namespace: ns
  uid: a
  resourceVersion: "1"
  generation: 1
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {tier: workers}
  annotations: {example.com/x: "1"}
  finalizers: [machine.cluster.x-k8s.io]
  ownerReferences:
  - {apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: ms, uid: ms-1, controller: true}
  - {apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, name: c, uid: c-1}
  managedFields:
  - {manager: fleet, operation: Apply, apiVersion: cluster.x-k8s.io/v1beta2,
    time: "2026-01-01T00:00:00Z",
    fieldsV1: {"f:metadata": {"f:ownerReferences": {'k:{"uid":"ms-1"}': {}}}}}
  - {manager: manager, operation: Update, apiVersion: cluster.x-k8s.io/v1beta2,
    fieldsV1: {"f:spec": {}}}
spec: {clusterName: c, replicas: 1, list: [a, b]}
status:
  observedGeneration: 1
  phase: Running
  conditions:
  - {type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z",
    observedGeneration: 1, reason: Ready}
  - {type: Paused, status: "False", lastTransitionTime: "2026-01-01T00:00:00Z", reason: NotPaused}
  deprecated: {v1beta1: {conditions: [
    {type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}
`

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestCompareReportsEachFieldThatDiffers changes one field of an object at a time, by replacing
// text.
func TestCompareReportsEachFieldThatDiffers(t *testing.T) {
	const fields = `fieldsV1: {"f:metadata"`
	const applied = "metadata.managedFields.fleet"
	tests := []struct {
		name, old, new string
		want           string // paths; empty when Equal
		withoutStatus  string // paths when status is left out
	}{
		{name: "uid", old: "uid: a", new: "uid: b"},
		{name: "resourceVersion", old: `resourceVersion: "1"`, new: `resourceVersion: "2"`},
		{name: "generation", old: "generation: 1", new: "generation: 7"},
		{name: "creationTimestamp", old: `creationTimestamp: "2026-01-01`,
			new: `creationTimestamp: "2026-02-02`},
		{name: "owner UID", old: "uid: c-1", new: "uid: c-2"},
		{name: "owner UID with its managed field", old: "ms-1", new: "ms-2"},
		{name: "managedFields time", old: `time: "2026-01-01`, new: `time: "2026-02-02`},
		{name: "managedFields version", old: "v1beta2,\n    time", new: "v1beta1,\n    time"},
		{name: "applier of an empty map", old: fields,
			new: `fieldsV1: {"f:spec": {"f:taints": {}}, "f:metadata"`},
		{name: "managedFields of an updater", old: "manager: manager", new: "manager: mgmtd"},
		{name: "observedGeneration", old: "  observedGeneration: 1", new: "  observedGeneration: 4"},
		{name: "condition time", old: `status: "True", lastTransitionTime: "2026-01-01`,
			new: `status: "True", lastTransitionTime: "2026-02-02`},
		{name: "condition generation", old: "observedGeneration: 1, reason",
			new: "observedGeneration: 3, reason"},
		{name: "Paused condition", old: `type: Paused, status: "False"`,
			new: `type: Paused, status: "True"`},
		{name: "our annotation", old: `example.com/x: "1"`,
			new: `example.com/x: "1", mgmtd.dev/workload-id: x`},

		{name: "label", old: "tier: workers", new: "tier: other", want: "metadata.labels.tier",
			withoutStatus: "metadata.labels.tier"},
		{name: "annotation", old: `example.com/x: "1"`, new: `example.com/x: "2"`,
			want:          `metadata.annotations["example.com/x"]`,
			withoutStatus: `metadata.annotations["example.com/x"]`},
		{name: "another annotation", old: `example.com/x: "1"`, new: `example.com/x: "1", new: z`,
			want: "metadata.annotations.new", withoutStatus: "metadata.annotations.new"},
		{name: "finalizer", old: "finalizers: [machine.cluster.x-k8s.io]", new: "finalizers: []",
			want: "metadata.finalizers", withoutStatus: "metadata.finalizers"},
		{name: "owner name", old: "name: c, uid", new: "name: d, uid",
			want: "metadata.ownerReferences[1].name", withoutStatus: "metadata.ownerReferences[1].name"},
		{name: "controller", old: "controller: true", new: "controller: false",
			want:          "metadata.ownerReferences[0].controller",
			withoutStatus: "metadata.ownerReferences[0].controller"},
		{name: "being deleted", old: "generation: 1", new: `deletionTimestamp: "2026-01-01T00:00:00Z"`,
			want: "metadata.deletionTimestamp", withoutStatus: "metadata.deletionTimestamp"},
		{name: "applier", old: "manager: fleet", new: "manager: other",
			want: applied + ", metadata.managedFields.other", withoutStatus: applied +
				", metadata.managedFields.other"},
		{name: "applier lost", old: "operation: Apply", new: "operation: Update",
			want: "metadata.managedFields", withoutStatus: "metadata.managedFields"},
		{
			name: "applier of an owner that is none", old: `{"uid":"ms-1"}`, new: `{"uid":"ms-0"}`,
			want: "metadata.managedFields", withoutStatus: "metadata.managedFields",
		},
		{name: "applier of another field", old: fields,
			new:  `fieldsV1: {"f:spec": {"f:list": {}}, "f:metadata"`,
			want: applied + `["spec.list"]`, withoutStatus: applied + `["spec.list"]`},
		{name: "applier of an element", old: fields,
			new:           `fieldsV1: {"f:spec": {"f:list": {'v:"b"': {}, 'v:"c"': {}}}, "f:metadata"`,
			want:          applied + `["spec.list.v:\"b\""]`,
			withoutStatus: applied + `["spec.list.v:\"b\""]`},
		{name: "applier of a status", old: fields,
			new:  `fieldsV1: {"f:status": {"f:phase": {}}, "f:metadata"`,
			want: applied + `["status.phase"]`},
		{name: "spec", old: "clusterName: c", new: "clusterName: d", want: "spec.clusterName",
			withoutStatus: "spec.clusterName"},
		{name: "absent and false", old: "clusterName: c", new: "clusterName: c, paused: false",
			want: "spec.paused", withoutStatus: "spec.paused"},
		{name: "list element", old: "[a, b]", new: "[a, c]", want: "spec.list[1]",
			withoutStatus: "spec.list[1]"},
		{name: "list length", old: "[a, b]", new: "[a]", want: "spec.list", withoutStatus: "spec.list"},
		{name: "phase", old: "phase: Running", new: "phase: Pending", want: "status.phase"},
		{name: "condition", old: `type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z",
    observed`, new: `type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:00:00Z",
    observed`, want: "status.conditions[0].status"},
		{name: "no status", old: "status:\n", new: "other:\n", want: "other, status",
			withoutStatus: "other"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(base, test.old) {
				t.Fatalf("the object has no %q", test.old)
			}
			was, is := parse(t, base), parse(t, strings.ReplaceAll(base, test.old, test.new))
			ref := RefOf(was)
			for _, c := range []struct {
				opts Options
				want string
			}{{Options{}, test.want}, {Options{WithoutStatus: true}, test.withoutStatus}} {
				got := ""
				for _, d := range Compare(Objects{ref: was}, Objects{ref: is}, c.opts) {
					got = strings.Join(d.Paths, ", ")
				}
				if got != c.want {
					t.Errorf("Compare with %+v differs in %q, want %q", c.opts, got, c.want)
				}
			}
			if text(was.Object) != text(parse(t, base).Object) {
				t.Error("Compare changed its argument")
			}
		})
	}
}

func TestCompareReportsObjectsGoneAndNew(t *testing.T) {
	a, b := parse(t, base), parse(t, strings.ReplaceAll(base, "name: m\n", "name: other\n"))
	got := Compare(Objects{RefOf(a): a}, Objects{RefOf(b): b}, Options{})
	if len(got) != 2 || got[0].String() != "Machine.cluster.x-k8s.io/ns/m is gone" ||
		got[1].String() != "Machine.cluster.x-k8s.io/ns/other is new" {
		t.Errorf("got %v", got)
	}
}

// TestCompareSeesSecretsOnlyByHash: compared Secrets contain no value, and differ when a value
// does.
func TestCompareSeesSecretsOnlyByHash(t *testing.T) {
	const secret = `{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ns, annotations: {
		kubectl.kubernetes.io/last-applied-configuration: 'x c2VjcmV0'}}, data: {key: c2VjcmV0}}`
	was, is := parse(t, secret), parse(t, strings.ReplaceAll(secret, "key: c2VjcmV0", "key: b3RoZXI="))
	hashValues(was)
	hashValues(is)
	if strings.Contains(text(was.Object), "c2VjcmV0") {
		t.Errorf("the value is still in %s", text(was.Object))
	}
	got := Compare(Objects{RefOf(was): was}, Objects{RefOf(is): is}, Options{})
	if len(got) != 1 || got[0].String() != "Secret/ns/s differs in data.key" {
		t.Errorf("got %v", got)
	}
}

func TestCheckPausedReportsEachChangedSwitch(t *testing.T) {
	object := func(more string) *unstructured.Unstructured {
		return parse(t, `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster,
			metadata: {name: c, namespace: ns`+more)
	}
	plain, paused := object("}}"), object("}, spec: {paused: true}}")
	annotated, marked := object(`, annotations: {cluster.x-k8s.io/paused: ""}}}`),
		object(`, annotations: {mgmtd.dev/operation: x, mgmtd.dev/was-paused: ""}}}`)
	for _, test := range []struct {
		name    string
		was, is *unstructured.Unstructured
		want    int
	}{
		{"neither", plain, plain, 0}, {"both", paused, paused, 0}, {"left paused", plain, paused, 1},
		{"no longer paused", paused, plain, 1},
		{"left annotated", plain, annotated, 1}, {"annotated both", annotated, annotated, 0},
		{"notes left", plain, marked, 2}, {"new and paused", nil, paused, 1},
	} {
		before := Objects{}
		if test.was != nil {
			before[RefOf(test.was)] = test.was
		}
		if got := CheckPaused(before, Objects{RefOf(test.is): test.is}); len(got) != test.want {
			t.Errorf("%s: got %q, want %d problems", test.name, got, test.want)
		}
	}
}

func TestHealthReportsWhatIsWorseThanBefore(t *testing.T) {
	const machine = `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine,
		metadata: {name: m, namespace: ns, generation: 2, labels: {cluster.x-k8s.io/cluster-name: c}},
		status: {conditions: [{type: Ready, status: "True", observedGeneration: 2},
		{type: Paused, status: "False", observedGeneration: 2}]}}`
	const cluster = `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster,
		metadata: {name: c, namespace: ns}, spec: {paused: true},
		status: {conditions: [{type: Available, status: "Unknown"}]}}`
	view := func(texts ...string) Objects {
		objects := Objects{}
		for _, text := range texts {
			o := parse(t, text)
			objects[RefOf(o)] = o
		}
		return objects
	}
	replace := func(old, new string) string { return strings.ReplaceAll(machine, old, new) }
	for _, test := range []struct {
		name          string
		before, after Objects
		want          string
	}{
		{"ready", view(machine), view(machine), ""},
		{"gone", view(machine), view(), "is gone"},
		{"not ready", view(machine), view(replace(`Ready, status: "True"`, `Ready, status: "False"`)),
			"Ready is False"},
		{"still paused", view(machine), view(replace(`Paused, status: "False"`,
			`Paused, status: "True"`)), "Paused is True"},
		{"an old copy of a status", view(machine), view(replace("generation: 2", "generation: 3")),
			"Paused is False at an older generation"},
		{"paused and as it was", view(cluster), view(cluster), ""},
		{"paused and worse", view(cluster), view(strings.ReplaceAll(cluster, "Unknown", "False")),
			"Available was Unknown and is False"},
		{"of a paused one", view(cluster, machine), view(cluster, replace(`Paused, status: "False"`,
			`Paused, status: "True"`)), ""},
	} {
		got := strings.Join(Health(test.before, test.after), "; ")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestUnexplainedByRestoreAllowsOneCreationEach(t *testing.T) {
	o := parse(t, base)
	ref, other := RefOf(o), Ref{Group: coreGroup, Kind: "Machine", Namespace: "ns", Name: "other"}
	before := Objects{ref: o}
	for _, test := range []struct {
		name   string
		events []Event
		want   int
	}{
		{"nothing", nil, 0}, {"restored", []Event{{Ref: ref, What: Created}}, 0},
		{"twice", []Event{{Ref: ref, What: Created}, {Ref: ref, What: Created}}, 1},
		{"deleted", []Event{{Ref: ref, What: Deleted}}, 1},
		{"an object that was not there", []Event{{Ref: other, What: Created}}, 1},
	} {
		if got := UnexplainedByRestore(test.events, before); len(got) != test.want {
			t.Errorf("%s: got %q, want %d", test.name, got, test.want)
		}
	}
}
