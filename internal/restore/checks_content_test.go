package restore

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAControlPlaneNeedsItsCertificates: RKE2 makes new authorities in the place of those that it
// does not find.
func TestAControlPlaneNeedsItsCertificates(t *testing.T) {
	cluster := `{"kind":"Cluster","metadata":{"namespace":"n","name":"w"},"spec":{"controlPlaneRef":{
		"apiGroup":"controlplane.cluster.x-k8s.io","kind":"RKE2ControlPlane","name":"w"}}}`
	controlPlane := `{"kind":"RKE2ControlPlane","metadata":{"namespace":"n","name":"w","labels":{
		"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{}}`
	// The operator may have the key of an external authority elsewhere.
	authority := func(purpose string) string {
		return fmt.Sprintf(`{"kind":"Secret","metadata":{"namespace":"n","name":"w-%s","labels":{
			"cluster.x-k8s.io/cluster-name":"w"}},"type":"cluster.x-k8s.io/secret","data":{"tls.crt":%q}}`,
			purpose, base64.StdEncoding.EncodeToString([]byte("a certificate")))
	}
	for name, tt := range map[string]struct {
		secrets []string
		missing bool
	}{
		"all":  {[]string{authority("ca"), authority("cca")}, false},
		"some": {[]string{authority("ca")}, true},
	} {
		x := newTrial(t, newMemory(t, "source", append([]string{needsNamespace, cluster, controlPlane},
			tt.secrets...)...), newMemory(t, "target"))
		plan := x.makePlan(t)
		missing := slices.ContainsFunc(plan.Findings, func(f object.Finding) bool {
			return f.Code == object.CodeCAMissing && f.Unit == "n/w"
		})
		if missing != tt.missing || plan.Units[0].Blocked != tt.missing {
			t.Errorf("%s: missing %t, blocked %t: %v", name, missing, plan.Units[0].Blocked, plan.Findings)
		}
	}
}
