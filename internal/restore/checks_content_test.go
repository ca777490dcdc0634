package restore

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAControlPlaneNeedsItsCertificates: RKE2 makes new authorities, and another token, in the
// place of those that it does not find. A token that is on the target is none that is missing.
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
	const token = `{"kind":"Secret","metadata":{"namespace":"n","name":"w-token","labels":{
		"cluster.x-k8s.io/cluster-name":"w"}},"type":"cluster.x-k8s.io/secret","data":{"value":"djE="}}`
	for name, tt := range map[string]struct {
		secrets, target []string
		missing         bool
	}{
		"all":      {[]string{authority("ca"), authority("cca"), token}, nil, false},
		"some":     {[]string{authority("ca"), token}, nil, true},
		"no token": {[]string{authority("ca"), authority("cca")}, nil, true},
		"the token on the target": {[]string{authority("ca"), authority("cca")},
			[]string{needsNamespace, token}, false},
	} {
		x := newTrial(t, newMemory(t, "source", append([]string{needsNamespace, cluster, controlPlane},
			tt.secrets...)...), newMemory(t, "target", tt.target...))
		plan := x.makePlan(t)
		missing := slices.ContainsFunc(plan.Findings, func(f object.Finding) bool {
			return f.Code == object.CodeCAMissing && f.Unit == "n/w"
		})
		if missing != tt.missing || plan.Units[0].Blocked != tt.missing {
			t.Errorf("%s: missing %t, blocked %t: %v", name, missing, plan.Units[0].Blocked, plan.Findings)
		}
	}
}
