package mgmt

import "testing"

func TestParseRef(t *testing.T) {
	for _, text := range []string{"Secret/ns/a", "Namespace/a", "Cluster.cluster.x-k8s.io/ns/a",
		"AzureClusterIdentity.infrastructure.cluster.x-k8s.io/a"} {
		r, err := ParseRef(text)
		if err != nil || r.String() != text {
			t.Errorf("%s becomes %s, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "a", "/a", "Secret/", "Secret//a", "Secret/a/b/c",
		".group/ns/a"} {
		if r, err := ParseRef(text); err == nil {
			t.Errorf("%q becomes %s", text, r)
		}
	}
}

func TestPause(t *testing.T) {
	for gk, want := range map[GroupKind]PauseSwitch{
		{"cluster.x-k8s.io", "Cluster"}:                                 PauseSpec,
		{"cluster.x-k8s.io", "ClusterClass"}:                            PauseNever,
		{"infrastructure.cluster.x-k8s.io", "OpenStackMachine"}:         PauseWithCluster,
		{"infrastructure.cluster.x-k8s.io", "OpenStackMachineTemplate"}: PauseNone,
		{"infrastructure.cluster.x-k8s.io", "OpenStackFloatingIPPool"}:  PauseUnsupported,
		{"metal3.io", "BareMetalHost"}:                                  PauseUnsupported,
		{"containerservice.azure.com", "ManagedCluster"}:                PauseUnsupported,
		{"example.org", "Thing"}:                                        PauseUnknown,
	} {
		if got := Pause(gk); got != want {
			t.Errorf("%s: %d, want %d", gk, got, want)
		}
	}
}
