package object

import "testing"

func TestParseRefReadsWhatStringWrites(t *testing.T) {
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
