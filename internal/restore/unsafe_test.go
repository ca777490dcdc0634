package restore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	providerSpace = `{"kind":"Namespace","metadata":{"name":"capo-system",
		"labels":{"cluster.x-k8s.io/provider":"infrastructure-openstack"}}}`
	prodSecret = "Secret/capo-system/prod"
)

// credentials is a Secret in the namespace of the provider. All but one have a label that asks to
// take them along.
func credentials(name, secretType, value string) string {
	labels := `{"clusterctl.cluster.x-k8s.io/move":""}`
	if name == "prod" {
		labels = `{}`
	}
	return fmt.Sprintf(`{"kind":"Secret","metadata":{"namespace":"capo-system","name":%q,
		"labels":%s},"type":%q,"data":{"clouds.yaml":%q}}`, name, labels, secretType, value)
}

// onInfra is a workload cluster n/w with infrastructure of a kind.
func onInfra(kind, spec string) []string {
	return []string{needsNamespace, fmt.Sprintf(`{"kind":"Cluster","metadata":{"namespace":"n",
		"name":"w"},"spec":{"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io",
		"kind":%q,"name":"w"}}}`, kind), fmt.Sprintf(`{"kind":%q,"metadata":{"namespace":"n",
		"name":"w","ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":%s}`, kind, spec)}
}

// identified is n/w with an identity whose Secret is in the namespace of the provider.
func identified() []string {
	return append(onInfra("OpenStackCluster", `{"identityRef":{"type":"ClusterIdentity",
		"name":"prod","cloudName":"c"}}`), `{"kind":"OpenStackClusterIdentity","metadata":{
		"name":"prod"},"spec":{"secretRef":{"name":"prod","namespace":"capo-system"}}}`)
}

// TestAnIdentityBringsItsSecret: into the namespace of its provider, where nothing else comes and
// nothing is overwritten.
func TestAnIdentityBringsItsSecret(t *testing.T) {
	tenant := onInfra("GCPCluster", `{"credentialsRef":{"name":"prod","namespace":"capo-system"}}`)
	for _, tt := range []struct {
		name     string
		source   []string
		target   []string
		force    object.Forced
		does     Action
		code     object.Code
		severity object.Severity
	}{
		{"the target lacks it", identified(), []string{providerSpace}, nil, Create,
			object.CodeProviderNamespace, object.Info},
		{"the target has it", identified(), []string{providerSpace, credentials("prod", "Opaque",
			"djE=")}, nil, Adopt, "", 0},
		{"the target has another one", identified(), []string{providerSpace, credentials("prod",
			"Opaque", "djI=")}, nil, Skip, object.CodeExistsDifferent, object.Error},
		{"the target has no such namespace", identified(), nil, nil, Skip, object.CodeRefused,
			object.Error},
		{"which the operator overrides", identified(), nil, object.Forced{object.CodeRefused: "",
			object.CodeNeedMissing: ""}, Skip, object.CodeRefused, object.Warning},
		{"a tenant names it", tenant, []string{providerSpace}, nil, Skip, object.CodeRefused,
			object.Error},
		{"a tenant names it, and the target has it", tenant, []string{providerSpace,
			credentials("prod", "Opaque", "djI=")}, nil, Skip, object.CodeRefused, object.Warning},
	} {
		for _, all := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, all %v", tt.name, all), func(t *testing.T) {
				x := newTrial(t, newMemory(t, "source", append(tt.source, providerSpace,
					credentials("prod", "Opaque", "djE="), credentials("planted", "Opaque", "djE="),
					credentials("webhook", "kubernetes.io/tls", "djE="))...),
					newMemory(t, "target", tt.target...))
				x.spec.Force = tt.force
				if !all {
					x.spec.Selection.Workloads = []object.Key{{Namespace: "n", Name: "w"}}
				}
				plan := x.makePlan(t)
				did := actions(plan)
				if did[prodSecret] != tt.does {
					t.Errorf("the Secret: %s, want %s: %v", did[prodSecret], tt.does, plan.Findings)
				}
				for _, name := range []string{"planted", "webhook"} {
					if d := did["Secret/capo-system/"+name]; d == Create || d == Adopt {
						t.Errorf("%s: %s", name, d)
					}
				}
				of := slices.DeleteFunc(slices.Clone(plan.Findings), func(f object.Finding) bool {
					return f.Ref.String() != prodSecret || f.Code == object.CodeNotChecked
				})
				if tt.code == "" && len(of) > 0 || tt.code != "" && (len(of) != 1 ||
					of[0].Code != tt.code || of[0].Severity != tt.severity) {
					t.Errorf("findings: %v", of)
				}
				blocked := plan.Blocked || plan.Units[0].Blocked
				if blocked != (tt.severity == object.Error) {
					t.Errorf("blocked %v: %v", blocked, plan.Findings)
				}
				if blocked {
					return
				}
				if _, err := x.run(t); err != nil {
					t.Fatal(err)
				}
				_, came := x.target.objects[object.Ref{Kind: "Secret", Namespace: "capo-system",
					Name: "prod"}]
				if came == (tt.does == Skip) && len(tt.target) < 2 {
					t.Errorf("the Secret is on the target: %v", came)
				}
			})
		}
	}
}

// TestOwnersAreTheIdentityOfTheTarget: the target has the identity already. What it owns gets the
// UID that it has there: with that of the source the garbage collector would delete it.
func TestOwnersAreTheIdentityOfTheTarget(t *testing.T) {
	const (
		identity = "OpenStackClusterIdentity.infrastructure.cluster.x-k8s.io/prod"
		owned    = "Secret/n/owned"
	)
	secret := `{"kind":"Secret","metadata":{"namespace":"n","name":"owned","labels":{
		"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"OpenStackClusterIdentity",
		"name":"prod"}]},"type":"Opaque","data":{"clouds.yaml":"djE="}}`
	there := identified()[len(identified())-1]
	x := newTrial(t, newMemory(t, "source", append(identified(), providerSpace, secret,
		credentials("prod", "Opaque", "djE="))...), newMemory(t, "target", providerSpace, there,
		credentials("prod", "Opaque", "djE=")))
	if did := actions(x.makePlan(t)); did[identity] != Adopt || did[owned] != Create {
		t.Fatalf("the plan: %v", did)
	}
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	owners, want := x.target.get(t, owned).GetOwnerReferences(), x.target.get(t, identity).GetUID()
	if len(owners) != 1 || owners[0].UID != want || want == x.source.get(t, identity).GetUID() {
		t.Errorf("its owners: %v, the identity: %s", owners, want)
	}
}

// TestAWorkloadClusterInTheNamespaceOfAProviderIsRestored: with its own Secrets, and without those
// of the provider.
func TestAWorkloadClusterInTheNamespaceOfAProviderIsRestored(t *testing.T) {
	space := `{"kind":"Namespace","metadata":{"name":"capo-system",
		"labels":{"cluster.x-k8s.io/provider":"k0rdent"}}}`
	secret := func(name, secretType string) string {
		return fmt.Sprintf(`{"kind":"Secret","metadata":{"namespace":"capo-system","name":%q,
			"labels":{"cluster.x-k8s.io/cluster-name":"w"}},"type":%q}`, name, secretType)
	}
	x := newTrial(t, newMemory(t, "source", space,
		`{"kind":"Cluster","metadata":{"namespace":"capo-system","name":"w"},"spec":{
			"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DevCluster",
			"name":"w"}}}`,
		`{"kind":"DevCluster","metadata":{"namespace":"capo-system","name":"w",
			"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{}}`,
		secret("w-kubeconfig", "cluster.x-k8s.io/secret"), secret("w-webhook", "kubernetes.io/tls"),
		secret("w-token", "kubernetes.io/service-account-token"),
		credentials("planted", "Opaque", "djE=")), newMemory(t, "target", space))
	plan := x.makePlan(t)
	if plan.Blocked || plan.Units[0].Blocked {
		// The certificate of the webhook is refused, and the target lacks it.
		x.spec.Force = object.Forced{object.CodeRefused: ""}
		plan = x.makePlan(t)
	} else {
		t.Errorf("a Secret of the unit is left out without an error: %v", plan.Findings)
	}
	did := actions(plan)
	for ref, want := range map[string]Action{
		"Cluster.cluster.x-k8s.io/capo-system/w":                   Create,
		"DevCluster.infrastructure.cluster.x-k8s.io/capo-system/w": Create,
		"Secret/capo-system/w-kubeconfig":                          Create,
		"Secret/capo-system/w-webhook":                             Skip,
		"Secret/capo-system/w-token":                               Skip,
		"Secret/capo-system/planted":                               Skip,
	} {
		if did[ref] != want {
			t.Errorf("%s: %q, want %q", ref, did[ref], want)
		}
	}
	if failures, err := x.run(t); err != nil {
		t.Errorf("%v %v", failures, err)
	}
}

// TestI8ATokenThatIsLeftOutBlocksNothing: one of the source grants nothing on the target, also
// where it belongs to a workload cluster.
func TestI8ATokenThatIsLeftOutBlocksNothing(t *testing.T) {
	for _, ns := range []string{"n", "capo-system"} {
		x := newTrial(t, newMemory(t, "source", providerSpace, fmt.Sprintf(`{"kind":"Namespace",
			"metadata":{"name":%q}}`, ns), fmt.Sprintf(`{"kind":"Cluster","metadata":{"namespace":%q,
			"name":"w"},"spec":{}}`, ns), fmt.Sprintf(`{"kind":"Secret","metadata":{"namespace":%q,
			"name":"w-token","labels":{"cluster.x-k8s.io/cluster-name":"w"}},
			"type":"kubernetes.io/service-account-token"}`, ns)), newMemory(t, "target", providerSpace))
		plan := x.makePlan(t)
		if did := actions(plan)["Secret/"+ns+"/w-token"]; did != Skip || plan.Blocked ||
			plan.Units[0].Blocked {
			t.Errorf("%s: %s, %v", ns, did, plan.Findings)
		}
	}
}
