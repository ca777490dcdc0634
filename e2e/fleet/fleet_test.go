package fleet

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestShapesCoverWhatCanGoWrong fails when the table loses a case that a snapshot, a restore or a
// move must be tested with.
func TestShapesCoverWhatCanGoWrong(t *testing.T) {
	for name, has := range map[string]func(Shape) bool{
		"a ClusterClass": func(s Shape) bool {
			return s.ClassNamespace == s.Namespace
		},
		"a ClusterClass in another namespace": func(s Shape) bool {
			return s.ClassNamespace != "" &&
				s.ClassNamespace != s.Namespace
		},
		"no ClusterClass":      func(s Shape) bool { return s.ClassNamespace == "" },
		"three control planes": func(s Shape) bool { return s.ControlPlanes == 3 },
		"several pools":        func(s Shape) bool { return len(s.Pools) > 1 },
		"health checks without a class": func(s Shape) bool {
			return s.HealthChecks &&
				s.ClassNamespace == ""
		},
		"addons":  func(s Shape) bool { return s.Addons },
		"a pause": func(s Shape) bool { return s.Paused },
	} {
		if !slices.ContainsFunc(Shapes(), has) {
			t.Errorf("no shape has %s", name)
		}
	}
	seen := map[string]bool{}
	for _, s := range Shapes() {
		if seen[s.Name] {
			t.Errorf("two shapes are named %s", s.Name)
		}
		seen[s.Name] = true
		// DeepCopy panics on what JSON cannot have, such as an int.
		for _, o := range slices.Concat(shared(s.Namespace), class("classes", ""), workload(s, "p-")) {
			o.DeepCopy()
		}
	}
}

func TestExtractTakesOwnedFieldsOnly(t *testing.T) {
	value := fields{
		"metadata": fields{"annotations": fields{"a": "1"}, "finalizers": []any{"x", "y"}},
		"spec": fields{
			"replicas": int64(3),
			"version":  "v1",
			"pools": []any{fields{"name": "md-0", "replicas": int64(1)},
				fields{"name": "md-1", "replicas": int64(2)}},
		},
	}
	owned := fields{}
	if err := json.Unmarshal([]byte(`{
		"f:metadata":{"f:annotations":{},"f:finalizers":{"v:\"y\"":{}}},
		"f:spec":{"f:replicas":{},"f:pools":{"k:{\"name\":\"md-1\"}":{".":{},"f:name":{}}}}}`),
		&owned); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(extract(value, owned))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"annotations":{},"finalizers":["y"]},` +
		`"spec":{"pools":[{"name":"md-1"}],"replicas":3}}`
	if string(got) != want {
		t.Errorf("extract = %s, want %s", got, want)
	}
}

// TestRecordingsMakeOtherWorkloads instantiates every prototype without an API
// server: no recorded name, mark or key may be left.
func TestRecordingsMakeOtherWorkloads(t *testing.T) {
	keys, err := newKeyPool("", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "classy"} {
		r, err := loadRecording(name)
		if err != nil {
			t.Fatal(err)
		}
		f := &bareFleet{opts: BareOptions{Machines: 8, Seed: 7}, keys: keys}
		s := f.scope(r, "team", 1)
		if s.certs, err = newCertificates(keys, s.rng.IntN, "w", "https://10.0.0.1:6443"); err != nil {
			t.Fatal(err)
		}
		base := s.child(r.base, append(r.endpoint("10.0.0.1"), recordedWorkload, "w", caHashMark,
			s.certs.caHash)...)
		size, controlPlanes, pools := f.plan(r, base, 2)
		if len(controlPlanes) != 3 || len(pools) != 2 || len(size.workers()) != 5 {
			t.Fatalf("plan of 8 Machines: %d control planes, %d pools, %d workers", len(controlPlanes),
				len(pools), len(size.workers()))
		}
		check := func(s *scope, group []prototype, pool int) {
			for _, p := range group {
				o, err := s.instantiate(p)
				if err != nil {
					t.Fatal(err)
				}
				size.resize(o, pool)
				assertNoTrace(t, o)
			}
		}
		check(base, r.base, -1)
		check(controlPlanes[0], r.initMachine, -1)
		check(controlPlanes[1], r.joinMachine, -1)
		check(pools[1].scope, r.pool, 1)
		check(pools[1].machines[0], r.worker, 1)
	}
}

func assertNoTrace(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	data, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range []string{recordedWorkload, recordedNamespace, "@pem", caHashMark,
		endpointMark, clusterUIDMark, recordedHost + ":2"} {
		for _, text := range append([]string{string(data)}, texts(o)...) {
			if strings.Contains(text, trace) {
				t.Errorf("%s %s still contains %q", o.GetKind(), o.GetName(), trace)
			}
		}
	}
}

func texts(o *unstructured.Unstructured) []string {
	var all []string
	for _, text := range secretText(o) {
		all = append(all, text)
	}
	return all
}
