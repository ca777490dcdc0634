//go:build api

package restore_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

const machinesCRD = "machines.cluster.x-k8s.io"

// TestAPIWhatTheTargetAddsOrConvertsKeepsNothingPaused: the target's policy labels every Secret,
// and it stores Machines at a version without spec.deletion and status.nodeInfo. Both are
// released, and a second restore adopts them. A target that changes a value of the snapshot is
// refused, until the operator accepts that.
func TestAPIWhatTheTargetAddsOrConvertsKeepsNothingPaused(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "adds-", "--workloads", "1", "--machines", "1", "--fast")
	s := take(t, "adds-")
	servers.Acknowledge(t, 1)
	defer mutate(t, "adds-label", "secrets",
		`Object{metadata: Object.metadata{labels: {"example.org/added": "yes"}}}`)()
	defer storeLessOfMachines(t)()
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Fatal(err)
	}
	again := planAgain(t, s)
	for _, code := range []object.Code{object.CodeAddedOnTarget, object.CodeLostInConversion} {
		if !slices.ContainsFunc(again.Findings, func(f object.Finding) bool { return f.Code == code }) {
			t.Errorf("no finding %s: %v", code, again.Findings)
		}
	}
}

// TestAPIAChangedValueBlocksAUnitUntilItIsAccepted: nothing of a unit is created while the target
// would change a value of it.
func TestAPIAChangedValueBlocksAUnitUntilItIsAccepted(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "changes-", "--workloads", "1", "--machines", "1",
		"--fast")
	s := take(t, "changes-")
	servers.Acknowledge(t, 1)
	defer mutate(t, "changes-spec", "machinedeployments",
		"Object{spec: Object.spec{replicas: 7}}")()
	err := s.carryOut(t.Context(), everything, realWriter)
	incomplete, ok := errors.AsType[*restore.IncompleteError](err)
	if !ok || incomplete.Blocked == 0 || incomplete.Failed > 0 {
		t.Fatalf("with another number of replicas: %v", err)
	}
	findings := s.reported(t)
	if f := findings[object.CodeChangedByTarget]; len(f) != incomplete.Blocked ||
		!strings.Contains(f[0].Message, "spec.replicas") {
		t.Errorf("findings %v", findings)
	}
	if clusters := onTarget(t, "changes-", "Cluster"); len(clusters) > 0 {
		t.Errorf("created: %v", clusters)
	}
	spec := everything
	if spec.Accept, err = accepted("MachineDeployment.cluster.x-k8s.io:spec.replicas"); err != nil {
		t.Fatal(err)
	}
	again := site{dir: t.TempDir(), target: s.target, store: s.dir}
	if err := again.carryOut(t.Context(), spec, realWriter); err != nil {
		t.Errorf("with that accepted: %v", err)
	}
}

// TestAPIARefusedUnitIsBlockedBeforeAnythingOfItIsCreated: a policy of the target refuses the
// Machines of one namespace. The other namespace is restored, and a resume without the policy
// restores the rest.
func TestAPIARefusedUnitIsBlockedBeforeAnythingOfItIsCreated(t *testing.T) {
	for _, prefix := range []string{"denied-", "healthy-"} {
		servers.Fleet(t, 0, "--namespace-prefix", prefix, "--workloads", "1", "--machines", "1", "--fast")
	}
	s := take(t, "denied-", "healthy-")
	servers.Acknowledge(t, 1)
	undo := deny(t, "denies-machines", "machines",
		`!object.metadata.namespace.startsWith("denied-")`, "machines are not wanted here")
	err := s.carryOut(t.Context(), everything, realWriter)
	incomplete, ok := errors.AsType[*restore.IncompleteError](err)
	if !ok || incomplete.Blocked != 1 || incomplete.Failed != 0 {
		undo()
		t.Fatalf("with a policy that denies: %v", err)
	}
	findings := s.reported(t)
	if f := findings[object.CodeRefusedByTarget]; len(f) != 1 || !strings.HasPrefix(f[0].Unit,
		"denied-") || !strings.Contains(f[0].Message, "machines are not wanted here") {
		t.Errorf("findings %v", findings)
	}
	for _, ref := range onTarget(t, "denied-", "Cluster") {
		t.Errorf("%s was created", ref)
	}
	undo()
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Fatalf("the resume: %v", err)
	}
	checkRestored(t, s)
}

// reported returns the findings in the history of the last operation of the site, by code.
func (s site) reported(t *testing.T) map[object.Code][]object.Finding {
	t.Helper()
	c, err := catalog.Open(t.Context(), s.dir+"/catalog.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ops, err := c.Operations(t.Context(), catalog.OperationFilter{Limit: 1})
	if err != nil || len(ops) == 0 {
		t.Fatal(err)
	}
	findings := map[object.Code][]object.Finding{}
	for e, err := range c.Events(t.Context(), ops[0].ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == catalog.EventFinding {
			f := *e.Finding
			f.Unit = e.Unit
			findings[f.Code] = append(findings[f.Code], f)
		}
	}
	return findings
}

// onTarget returns the objects of a kind in the namespace of a fleet on the target.
func onTarget(t *testing.T, prefix, kind string) []object.Ref {
	t.Helper()
	m := servers.Connect(t, 1)
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var refs []object.Ref
	for _, k := range kinds {
		if k.Kind != kind {
			continue
		}
		if _, err := m.Reader().List(t.Context(), k, kube.ListOptions{
			Namespace: prefix + "team-0000"}, func(raw []byte) error {
			u := &unstructured.Unstructured{}
			err := u.UnmarshalJSON(raw)
			refs = append(refs, object.Ref{Group: k.Group, Kind: k.Kind, Namespace: u.GetNamespace(),
				Name: u.GetName()})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return refs
}

// deny lets the target refuse what does not satisfy a CEL expression, until undo is called.
func deny(t *testing.T, name, resource, expression, words string) (undo func()) {
	t.Helper()
	quoted, err := json.Marshal(expression)
	if err != nil {
		t.Fatal(err)
	}
	policy := createOnTarget(t, "validatingadmissionpolicies",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy",
		"metadata":{"name":"`+name+`"},"spec":{"failurePolicy":"Fail","matchConstraints":{
		"resourceRules":[{"apiGroups":["cluster.x-k8s.io"],"apiVersions":["*"],
			"operations":["CREATE"],"resources":["`+resource+`"]}]},
		"validations":[{"expression":`+string(quoted)+`,"message":"`+words+`"}]}}`)
	binding := createOnTarget(t, "validatingadmissionpolicybindings",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",
		"metadata":{"name":"`+name+`"},"spec":{"policyName":"`+name+`","validationActions":["Deny"]}}`)
	time.Sleep(2 * time.Second) // until the API server applies it
	return func() {
		binding()
		policy()
		time.Sleep(2 * time.Second)
	}
}

func accepted(text string) ([]object.AcceptedDifference, error) {
	a, err := object.ParseAcceptedDifference(text)
	return []object.AcceptedDifference{a}, err
}

// mutate lets the target change what is written to a resource, until undo is called.
func mutate(t *testing.T, name, resource, expression string) (undo func()) {
	t.Helper()
	group := "cluster.x-k8s.io"
	if resource == "secrets" {
		group = ""
	}
	quoted, err := json.Marshal(expression)
	if err != nil {
		t.Fatal(err)
	}
	policy := createOnTarget(t, "mutatingadmissionpolicies",
		`{"apiVersion":"admissionregistration.k8s.io/v1",
		"kind":"MutatingAdmissionPolicy","metadata":{"name":"`+name+`"},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":["`+group+`"],"apiVersions":["*"],
			"operations":["CREATE","UPDATE"],"resources":["`+resource+`"]}]},
		"failurePolicy":"Fail","reinvocationPolicy":"Never",
		"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":`+string(quoted)+
			`}}]}}`)
	binding := createOnTarget(t, "mutatingadmissionpolicybindings",
		`{"apiVersion":"admissionregistration.k8s.io/v1",
		"kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"`+name+`"},
		"spec":{"policyName":"`+name+`"}}`)
	time.Sleep(2 * time.Second) // until the API server applies it
	return func() {
		binding()
		policy()
	}
}

// createOnTarget creates an object of admissionregistration.k8s.io.
func createOnTarget(t *testing.T, resource, text string) (remove func()) {
	t.Helper()
	client := dynamicClient(t, 1).Resource(schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := client.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// storeLessOfMachines makes the target store Machines at a new version, whose schema has no
// spec.deletion and no status.nodeInfo, until undo is called.
func storeLessOfMachines(t *testing.T) (undo func()) {
	t.Helper()
	const newest = "v1beta9"
	var stored string
	changeMachines(t, func(versions []any) []any {
		for _, v := range versions {
			if version := v.(map[string]any); version["storage"] == true {
				stored = version["name"].(string)
				added := (&unstructured.Unstructured{Object: version}).DeepCopy().Object
				added["name"] = newest
				for part, field := range map[string]string{"spec": "deletion", "status": "nodeInfo"} {
					unstructured.RemoveNestedField(added, "schema", "openAPIV3Schema", "properties", part,
						"properties", field)
				}
				version["storage"] = false
				return append(versions, added)
			}
		}
		return versions
	})
	return func() {
		empty(t)
		changeMachines(t, func(versions []any) []any {
			for _, v := range versions {
				version := v.(map[string]any)
				version["storage"] = version["name"] == stored
			}
			return versions
		})
		patch := []byte(`{"status":{"storedVersions":["` + stored + `"]}}`)
		if _, err := dynamicClient(t, 1).Resource(crds).Patch(t.Context(), machinesCRD,
			types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		changeMachines(t, func(versions []any) []any {
			return slices.DeleteFunc(versions, func(v any) bool {
				return v.(map[string]any)["name"] == newest
			})
		})
	}
}

// changeMachines changes the versions of the CRD of Machines on the target, and waits until the
// API server serves them.
func changeMachines(t *testing.T, fn func(versions []any) []any) {
	t.Helper()
	client := dynamicClient(t, 1).Resource(crds)
	crd, err := client.Get(t.Context(), machinesCRD, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err := unstructured.SetNestedSlice(crd.Object, fn(versions), "spec",
		"versions"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
}
