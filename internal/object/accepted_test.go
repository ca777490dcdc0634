package object

import "testing"

func TestAnAcceptedDifferenceCoversItsPathAndWhatIsBelow(t *testing.T) {
	machine := GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
	for _, tt := range []struct {
		accepted, path string
		covers         bool
	}{
		{"Machine.cluster.x-k8s.io:status.nodeRef", "status.nodeRef.uid", true},
		{"Machine.cluster.x-k8s.io:status.nodeRef.uid", "status.nodeRef.uid", true},
		{"Machine.cluster.x-k8s.io:status.nodeRef.uid", "status.nodeRef", false},
		{"Machine.cluster.x-k8s.io:status.node", "status.nodeRef", false},
		{"Machine.cluster.x-k8s.io:spec.list.a", "spec.list[3].a", true},
		{"Machine.cluster.x-k8s.io:spec.list", "spec.list[3].a", true},
		{"Machine.cluster.x-k8s.io:spec.list[3]", "spec.list[3].a", true},
		{"Machine.cluster.x-k8s.io:spec.list[2]", "spec.list[3].a", false},
		{"MachineSet.cluster.x-k8s.io:spec", "spec.a", false},
		{"Machine:spec", "spec.a", false},
	} {
		a, err := ParseAcceptedDifference(tt.accepted)
		if err != nil {
			t.Fatal(err)
		}
		if a.Covers(machine, tt.path) != tt.covers || a.String() != tt.accepted {
			t.Errorf("%s covers %s: %v", a, tt.path, !tt.covers)
		}
	}
}

func TestWhatNobodyMayAccept(t *testing.T) {
	for _, text := range []string{"", "Machine", "Machine:", ":spec", "Machine:.spec", "Machine:spec.",
		"Secret:data", "Secret:data.value", "Secret:stringData.a", "Secret:type"} {
		if a, err := ParseAcceptedDifference(text); err == nil {
			t.Errorf("%q is accepted as %v", text, a)
		}
	}
	for _, text := range []string{"Secret:metadata.labels", "ConfigMap:data.a"} {
		if _, err := ParseAcceptedDifference(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
