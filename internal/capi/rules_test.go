package capi

import (
	"strings"
	"testing"
)

func TestCertificateOf(t *testing.T) {
	for name, want := range map[string]string{"a-ca": "a", "a-b-kubeconfig": "a-b",
		"a-apiserver-etcd-client": "a", "a-etcd": "a", "ca": "", "other": ""} {
		if got := CertificateOf(name); got != want {
			t.Errorf("%s belongs to %q, want %q", name, got, want)
		}
	}
}

// TestRulesReadTheSpec: references are read from the spec alone.
func TestRulesReadTheSpec(t *testing.T) {
	for _, r := range Rules {
		if !strings.HasPrefix(r.Path, "spec.") {
			t.Errorf("the rule of %s for %q does not begin with the spec", r.From, r.Path)
		}
	}
}
