package restore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	needsNamespace = `{"kind":"Namespace","metadata":{"name":"n"}}`
	needsCluster   = `{"kind":"Cluster","metadata":{"namespace":"n","name":"w"},` +
		`"spec":{"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io",` +
		`"kind":"DevCluster","name":"w"}}}`
	needsInfra = `{"kind":"DevCluster","metadata":{"namespace":"n","name":"w",` +
		`"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{}}`
)

// needsMachine is a Machine with its infrastructure and the Secret of its bootstrap data, with more
// fields besides its spec.
func needsMachine(more string) string {
	return fmt.Sprintf(`{"kind":"Machine","metadata":{"namespace":"n","name":"m",`+
		`"labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"Cluster",`+
		`"name":"w"}]%s},
		"spec":{"clusterName":"w","infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io",
			"kind":"DevMachine","name":"m"},"bootstrap":{"dataSecretName":"boot"}}`, more)
}

const needsMachineInfra = `{"kind":"DevMachine","metadata":{"namespace":"n","name":"m",` +
	`"ownerReferences":[{"kind":"Machine","name":"m"}]},"spec":{}}`

// TestAUnitWithoutWhatItCannotDoWithoutIsBlocked: infrastructure and bootstrap data that are
// neither in the snapshot nor on the target are errors of the unit, and nothing else is.
func TestAUnitWithoutWhatItCannotDoWithoutIsBlocked(t *testing.T) {
	for _, tt := range []struct {
		name     string
		source   []string
		target   []string
		force    object.Forced
		field    string // that the finding names
		severity object.Severity
	}{
		{"its Cluster lacks infrastructure", nil, nil, nil, "spec.infrastructureRef", object.Error},
		{"the target has it", nil, []string{needsNamespace, `{"kind":"DevCluster",` +
			`"metadata":{"namespace":"n","name":"w"},"spec":{}}`},
			nil, "spec.infrastructureRef", object.Warning},
		{"the operator takes the risk", nil, nil, object.Forced{object.CodeNeedMissing: ""},
			"spec.infrastructureRef", object.Warning},
		{"its Machine lacks infrastructure", []string{needsInfra, needsMachine("") + `,` +
			`"status":{"nodeRef":{"name":"m"}}}`},
			nil, nil, "spec.infrastructureRef", object.Error},
		{"its Machine without a Node lacks bootstrap data", []string{needsInfra,
			needsMachine("") + "}", needsMachineInfra},
			nil, nil, "spec.bootstrap.dataSecretName", object.Error},
		{"its Machine with a Node lacks bootstrap data", []string{needsInfra, needsMachine("") + `,` +
			`"status":{"nodeRef":{"name":"m"}}}`,
			needsMachineInfra}, nil, nil, "spec.bootstrap.dataSecretName", object.Warning},
		{"its Machine is being deleted", []string{needsInfra, needsMachine(`,`+
			`"deletionTimestamp":"2026-11-22T12:00:00Z"`) + "}",
			needsMachineInfra}, nil, nil, "spec.bootstrap.dataSecretName", object.Warning},
		{"it has all", []string{needsInfra}, nil, nil, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := newMemory(t, "source", append([]string{needsNamespace, needsCluster}, tt.source...)...)
			x := newTrial(t, source, newMemory(t, "target", tt.target...))
			x.spec.Force = tt.force
			plan := x.makePlan(t)
			found := slices.DeleteFunc(slices.Clone(plan.Findings), func(f object.Finding) bool {
				return f.Code != object.CodeNeedMissing ||
					!strings.Contains(f.Message, " in "+tt.field)
			})
			if tt.field == "" {
				if len(found) > 0 || plan.Blocked {
					t.Errorf("blocked %v: %v", plan.Blocked, plan.Findings)
				}
				return
			}
			if len(found) != 1 || found[0].Severity != tt.severity || found[0].Unit != "n/w" ||
				plan.Units[0].Blocked != (tt.severity == object.Error) {
				t.Errorf("blocked %v: %v", plan.Units[0].Blocked, plan.Findings)
			}
		})
	}
}

// TestI8ARefusedObjectOfAProviderBlocksItsUnit: the CRD of the target lacks the labels of a
// provider, so its objects are not created, and their workload cluster must not be released.
func TestI8ARefusedObjectOfAProviderBlocksItsUnit(t *testing.T) {
	for _, forced := range []bool{false, true} {
		x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra),
			newMemory(t, "target"))
		x.target.kinds = slices.Clone(x.target.kinds)
		for i := range x.target.kinds {
			if k := &x.target.kinds[i]; k.Kind == "DevCluster" {
				*k = kube.Kind{GroupKind: k.GroupKind, Version: k.Version, Resource: k.Resource,
					Namespaced: true, Status: true, Served: k.Served}
			}
		}
		if forced {
			x.spec.Force = object.Forced{object.CodeRefused: "",
				object.CodeNeedMissing: ""}
		}
		plan := x.makePlan(t)
		want := map[bool]object.Severity{false: object.Error, true: object.Warning}[forced]
		for _, code := range []object.Code{object.CodeRefused, object.CodeNeedMissing} {
			if !slices.ContainsFunc(plan.Findings, func(f object.Finding) bool {
				return f.Code == code && f.Severity == want && f.Unit == "n/w"
			}) {
				t.Errorf("forced %v: no %s %s of the unit: %v", forced, want, code, plan.Findings)
			}
		}
		if plan.Units[0].Blocked == forced {
			t.Errorf("forced %v: blocked %v", forced, plan.Units[0].Blocked)
		}
	}
}

// TestAnOptionalReferenceIsNotMissed: the failure domain of a Machine is an object of one provider
// alone.
func TestAnOptionalReferenceIsNotMissed(t *testing.T) {
	machine := strings.Replace(needsMachine(""), `"clusterName":"w",`,
		`"clusterName":"w","failureDomain":"zone-a",`, 1) + `}`
	x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra, machine,
		needsMachineInfra), newMemory(t, "target"))
	named := false
	for _, n := range x.snapshot.Graph.Nodes {
		for _, need := range n.Needs {
			named = named || need.Name == "zone-a" && need.Optional
		}
	}
	if !named {
		t.Fatal("the Machine names no zone")
	}
	for _, f := range x.makePlan(t).Findings {
		if f.Code == object.CodeNeedMissing && strings.Contains(f.Message, "zone-a") {
			t.Errorf("found %v", f)
		}
	}
}
