//go:build api

package restore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/modify"
)

// TestAPIModifiedRestoreCrashes: a restore changes shared credentials and the infrastructure of a
// workload cluster, dies at some of its writes, and is resumed with the same modifiers. The target
// has what the modifiers say, all else is equal, and a second restore adopts everything.
func TestAPIModifiedRestoreCrashes(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "modified-", "--workloads", "1", "--machines", "1",
		"--fast")
	s := take(t, "modified-")
	servers.Acknowledge(t, 1)
	if err := os.WriteFile(s.dir+"/"+modifiersFile, []byte(`apiVersion: v1
kind: ConfigMap
metadata: {name: another-site, namespace: velero}
data:
  modifiers.yaml: |
    version: v1
    resourceModifierRules:
    - conditions: {groupResource: secrets, resourceNameRegex: ^registry-credentials$}
      mergePatches: [{patchData: "stringData: {config.json: correct-horse}"}]
    - conditions: {groupResource: devclusters.infrastructure.cluster.x-k8s.io}
      patches:
      - {operation: replace, path: /metadata/annotations/example.com~1purpose, value: another}
      - operation: add
        path: /spec/controlPlaneEndpoint
        value: '{"host":"b.example.com","port":6443}'
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, crashed := crashOnce(t, s, nil, crash{after: i%2 == 1, write: 2 + 3*i}); !crashed {
			t.Fatal("it came to its end")
		}
	}
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Fatal(err)
	}
	changed := map[string][]string{}
	w, err := s.open(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range w.snapshot.Graph.Nodes {
		k, _ := kube.FindKind(w.kinds, n.GroupKind())
		live, err := w.target.Reader().Get(t.Context(), k, n.Namespace, n.Name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := w.contents.Bytes(n.Ref)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if n.GroupKind() != kube.NamespaceKind.GroupKind {
			if paths := equality.Differences(nil, want, live.Object, equality.Values); len(paths) > 0 {
				changed[n.Kind] = paths
			}
		}
		checkModifiedLive(t, live)
	}
	if len(changed) != 2 || len(changed["Secret"]) != 1 || len(changed["DevCluster"]) == 0 {
		t.Errorf("changed are %v", changed)
	}
	again := planAgain(t, s)
	if again.Spec.Modifiers == "" {
		t.Error("the plan has no digest of its modifiers")
	}
	text, err := os.ReadFile(s.dir + "/catalog.db")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"correct-horse", "Y29ycmVjdC1ob3JzZQ==", "b.example.com"} {
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("the catalog has %s", value)
		}
	}
}

func checkModifiedLive(t *testing.T, live *unstructured.Unstructured) {
	t.Helper()
	switch live.GetKind() {
	case "DevCluster":
		host, _, _ := unstructured.NestedString(live.Object, "spec", "controlPlaneEndpoint", "host")
		if host != "b.example.com" || live.GetAnnotations()["example.com/purpose"] != "another" {
			t.Errorf("DevCluster %s: host %q, annotations %v", live.GetName(), host, live.GetAnnotations())
		}
	case "Secret":
		data, _, _ := unstructured.NestedString(live.Object, "data", "config.json")
		if live.GetName() == "registry-credentials" && data != "Y29ycmVjdC1ob3JzZQ==" {
			t.Errorf("the credentials are not those of the modifiers")
		}
	}
}

// TestAPIResumeWithoutModifiers: a killed restore is not resumed without its modifiers, and nothing
// changes.
func TestAPIResumeWithoutModifiers(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "unmodified-", "--workloads", "1", "--machines", "1",
		"--fast")
	s := take(t, "unmodified-")
	servers.Acknowledge(t, 1)
	file := s.dir + "/" + modifiersFile
	if err := os.WriteFile(file, []byte("version: v1\nresourceModifierRules:\n- conditions: "+
		"{groupResource: configmaps}\n  mergePatches: [{patchData: 'data: {site: b}'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, crashed := crashOnce(t, s, nil, crash{write: 3}); !crashed {
		t.Fatal("it came to its end")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	err := s.carryOut(t.Context(), everything, realWriter)
	if e, ok := errors.AsType[*modify.MismatchError](err); !ok || !e.Missing {
		t.Errorf("resumed without modifiers: %v", err)
	}
}
