//go:build api

package restore_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAPIObjectsOfAnOlderContractAreReleasedAndAdopted: the source stores objects at v1beta1, as
// the controllers of Cluster API 1.10 left them. The target stores v1beta2; its conversion
// webhooks drop values such as the UID of a Machine's Node, and store what v1beta1 cannot hold in
// an annotation. Neither keeps a unit paused, and a second restore adopts the copies and writes
// nothing.
func TestAPIObjectsOfAnOlderContractAreReleasedAndAdopted(t *testing.T) {
	contracts := kubetest.StartContracts(t)
	contracts.Fleet(t, 0, "--old", "--workloads", "2", "--machines", "4")
	s := takeFrom(t, contracts)
	contracts.Acknowledge(t, 1)
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Errorf("findings %v", s.reported(t))
		t.Fatal(err)
	}
	findings := s.reported(t)
	for code, all := range findings {
		for _, f := range all {
			if f.Severity > object.Warning || strings.Contains(f.Message, "conversion-data") {
				t.Errorf("finding %s: %v", code, f)
			}
		}
	}
	units := map[string]bool{}
	for _, f := range findings[object.CodeLostInConversion] {
		units[f.Unit] = f.Unit != ""
	}
	if delete(units, ""); len(units) != 2 {
		t.Errorf("lost in conversion is reported for %v, want 2 units: %v", units, findings)
	}
	before := liveVersions(t, contracts)
	again := planAgain(t, s)
	for _, f := range again.Findings {
		if f.Severity > object.Warning || strings.Contains(f.Message, "conversion-data") {
			t.Errorf("planned again: %v", f)
		}
	}
	second := site{dir: t.TempDir(), target: s.target, store: s.dir}
	if err := second.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Errorf("the second restore: %v", err)
	}
	for ref, version := range liveVersions(t, contracts) {
		if before[ref] != version {
			t.Errorf("the second restore has written to %s", ref)
		}
	}
}

// liveVersions returns the resourceVersions of the objects of Cluster API on server 1, none of
// which may be paused by us any more.
func liveVersions(t *testing.T, servers *kubetest.Servers) map[object.Ref]string {
	t.Helper()
	m := servers.Connect(t, 1)
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds = slices.DeleteFunc(kinds, func(k kube.Kind) bool { return !k.Contract })
	versions := map[object.Ref]string{}
	for _, k := range kinds {
		if _, err := m.Reader().List(t.Context(), k, kube.ListOptions{}, func(raw []byte) error {
			u := &unstructured.Unstructured{}
			err := u.UnmarshalJSON(raw)
			ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
			versions[ref] = u.GetResourceVersion()
			paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
			_, ours := u.GetAnnotations()["mgmtd.dev/was-paused"]
			if paused && k.Kind == "Cluster" || ours {
				t.Errorf("%s is paused", ref)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return versions
}
