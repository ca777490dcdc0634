package restore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// planted are objects of a snapshot that name a workload cluster which the snapshot does not have:
// left behind by a deletion, or planted by the administrator of the source.
var planted = []string{
	`{"kind":"Namespace","metadata":{"name":"ns"}}`,
	`{"kind":"MachineHealthCheck","metadata":{"namespace":"ns","name":"mhc"},"spec":{
		"clusterName":"prod"}}`,
	`{"kind":"Machine","metadata":{"namespace":"ns","name":"prod-cp-z","labels":{
		"cluster.x-k8s.io/cluster-name":"prod"},
		"ownerReferences":[{"kind":"KubeadmControlPlane","name":"prod-cp",
			"apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","uid":"gone"}]},
		"spec":{"clusterName":"prod"}}`,
	`{"kind":"KubeadmConfig","metadata":{"namespace":"ns","name":"prod-cp-z",
		"ownerReferences":[{"kind":"Machine","name":"prod-cp-z"}]}}`,
}

// findings returns the findings of a plan with one of codes, as "severity code ref".
func findings(p *Plan, codes ...object.Code) []string {
	var out []string
	for _, f := range p.Findings {
		if slices.Contains(codes, f.Code) {
			out = append(out, fmt.Sprintf("%s %s %s %s", f.Severity, f.Code, f.Ref, f.Unit))
		}
	}
	slices.Sort(out)
	return out
}

// actions returns what a plan does with its objects, by ref.
func actions(p *Plan) map[string]Action {
	out := map[string]Action{}
	for _, u := range p.parts() {
		for _, o := range u.Objects {
			out[o.Ref.String()] = o.Action
		}
	}
	return out
}

const (
	plantedMHC     = "MachineHealthCheck.cluster.x-k8s.io/ns/mhc"
	plantedMachine = "Machine.cluster.x-k8s.io/ns/prod-cp-z"
	plantedConfig  = "KubeadmConfig.bootstrap.cluster.x-k8s.io/ns/prod-cp-z"
)

// TestNothingAttachesToALiveWorkloadCluster: objects that name a Cluster which is not restored are
// left out, and when they are asked for, those whose Cluster or owner lives on the target still
// are. Everything else is restored.
func TestNothingAttachesToALiveWorkloadCluster(t *testing.T) {
	live := []string{`{"kind":"Namespace","metadata":{"name":"ns"}}`,
		`{"kind":"Cluster","metadata":{"namespace":"ns","name":"prod"},"spec":{}}`,
		`{"kind":"KubeadmControlPlane","metadata":{"namespace":"ns","name":"prod-cp",
			"labels":{"cluster.x-k8s.io/cluster-name":"prod"}}}`}
	for name, tt := range map[string]struct {
		target  []string
		include bool
		code    object.Code
		created bool
	}{
		"they are not asked for":                   {nil, false, object.CodeUnowned, false},
		"they are not asked for, and it lives":     {live, false, object.CodeUnowned, false},
		"they are asked for, and it lives":         {live, true, object.CodeAttachesToLive, false},
		"they are asked for, and nothing is there": {nil, true, object.CodeAttachesToLive, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t, twoTenants(t, planted...), newMemory(t, "target", tt.target...))
			x.spec.IncludeUnowned = tt.include
			p := x.makePlan(t)
			did := actions(p)
			for _, ref := range []string{plantedMHC, plantedMachine, plantedConfig} {
				created := tt.created && ref == plantedMHC // the owner of the others is nowhere
				if (did[ref] == Create) != created {
					t.Errorf("%s: %s", ref, did[ref])
				}
			}
			if n := len(findings(p, tt.code)); !tt.created && n != 3 {
				t.Errorf("%d findings %s: %v", n, tt.code, p.Findings)
			}
			if p.Blocked || did["Cluster.cluster.x-k8s.io/one/w"] != Create {
				t.Error("the rest is not restored")
			}
			if _, err := x.run(t); err != nil || x.released(t) == "" {
				t.Errorf("run: %v", err)
			}
			for _, ref := range []string{plantedMHC, plantedMachine, plantedConfig} {
				if there := x.target.get(t, ref) != nil; there != (tt.created && ref == plantedMHC) {
					t.Errorf("%s is on the target: %v", ref, there)
				}
			}
		})
	}
}

// TestAnObjectOfAUnitThatNamesALiveClusterBlocksItsUnit: the label says one workload cluster and
// the spec another one, which the webhooks of the target believe.
func TestAnObjectOfAUnitThatNamesALiveClusterBlocksItsUnit(t *testing.T) {
	x := newTrial(t, twoTenants(t, `{"kind":"MachineHealthCheck","metadata":{"namespace":"one",
		"name":"mhc",
		"labels":{"cluster.x-k8s.io/cluster-name":"w"}},"spec":{"clusterName":"prod"}}`),
		newMemory(t, "target", `{"kind":"Namespace","metadata":{"name":"one","labels":{"team":"one"}}}`,
			`{"kind":"Cluster","metadata":{"namespace":"one","name":"prod"},"spec":{}}`))
	got := findings(x.makePlan(t), object.CodeAttachesToLive)
	want := []string{"error attaches-to-live MachineHealthCheck.cluster.x-k8s.io/one/mhc one/w"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := x.run(t); x.released(t) != "one/prod two/w" {
		t.Errorf("released %s: %v", x.released(t), err)
	}
}

// TestALeftoverOnTheTargetBlocksItsUnit: the target has a Machine of an earlier attempt, which is
// not in the snapshot.
func TestALeftoverOnTheTargetBlocksItsUnit(t *testing.T) {
	const (
		machine = `{"kind":"Machine","metadata":{"namespace":"one","name":"old","labels":{
			"cluster.x-k8s.io/cluster-name":"w"}}}`
		owned = `{"kind":"KubeadmConfigTemplate","metadata":{"namespace":"one","name":"old",
			"ownerReferences":[{"kind":"Cluster","apiVersion":"cluster.x-k8s.io/v1beta2","name":"w",
				"uid":"x"}]}}`
		other = `{"kind":"Machine","metadata":{"namespace":"one","name":"other","labels":{
			"cluster.x-k8s.io/cluster-name":"other"}}}`
	)
	target := func(more ...string) *memory {
		return newMemory(t, "target", append([]string{
			`{"kind":"Namespace","metadata":{"name":"one","labels":{"team":"one"}}}`,
			`{"kind":"Namespace","metadata":{"name":"two","labels":{"team":"two"}}}`, machine, owned, other},
			more...)...)
	}
	x := newTrial(t, twoTenants(t, `{"kind":"KubeadmConfigTemplate","metadata":{"namespace":"two",
		"name":"t"}}`),
		target())
	got := findings(x.makePlan(t), object.CodeExtraOnTarget)
	want := []string{
		"error extra-on-target Machine.cluster.x-k8s.io/one/old one/w",
		"warning extra-on-target KubeadmConfigTemplate.bootstrap.cluster.x-k8s.io/one/old one/w"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := x.run(t); x.released(t) != "two/w" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
	x = newTrial(t, twoTenants(t), target())
	x.spec.Force = object.Forced{object.CodeExtraOnTarget: ""}
	if p := x.makePlan(t); p.Units[0].Blocked {
		t.Errorf("overridden, and blocked: %v", p.Findings)
	}
	// A workload cluster at work on the target is adopted: its controllers have made more since.
	x = newTrial(t, twoTenants(t), target(classOneThere,
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"w"},"spec":{"topology":{"classRef":{
			"name":"class"}}}}`))
	if p := x.makePlan(t); len(findings(p, object.CodeExtraOnTarget)) > 0 || p.Units[0].Blocked {
		t.Errorf("at work: %v", p.Findings)
	}
}

const classOneThere = `{"kind":"ClusterClass","metadata":{"namespace":"one","name":"class"},
	"spec":{},
	"status":{"observedGeneration":1,"conditions":[{"type":"VariablesReady","status":"True"}]}}`

// TestNothingSelectsAWorkloadClusterOfTheTarget: a HelmChartProxy acts on every Cluster of its
// namespace with certain labels.
func TestNothingSelectsAWorkloadClusterOfTheTarget(t *testing.T) {
	proxy := func(selector string) string {
		return fmt.Sprintf(`{"kind":"HelmChartProxy","metadata":{"namespace":"n","name":"charts"},
			"spec":{"clusterSelector":%s}}`, selector)
	}
	const live = `{"kind":"Cluster","metadata":{"namespace":"n","name":"live",
		"labels":{"charts":"yes","stage":"prod"}},"spec":{}}`
	for _, tt := range []struct {
		name, selector string
		target         []string
		attaches       bool
	}{
		{"of these labels", `{"matchLabels":{"charts":"yes"}}`, []string{needsNamespace, live}, true},
		{"of these expressions", `{"matchExpressions":[{"key":"stage","operator":"In",
			"values":["prod"]}]}`, []string{needsNamespace, live}, true},
		{"that cannot be read", `"junk"`, []string{needsNamespace, live}, true},
		{"of other labels", `{"matchLabels":{"charts":"no"}}`, []string{needsNamespace, live}, false},
		{"of another namespace", `{"matchLabels":{"charts":"yes"}}`,
			[]string{strings.ReplaceAll(live, `"n"`, `"other"`)}, false},
		{"and the target has one of that name", `{"matchLabels":{"charts":"yes"}}`,
			[]string{needsNamespace, live, proxy(`{"matchLabels":{"charts":"yes"}}`)}, false},
	} {
		x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"), proxy(tt.selector)),
			newMemory(t, "target", tt.target...))
		plan := x.makePlan(t)
		if list := found(plan, object.CodeAttachesToLive); len(list) > 0 != tt.attaches ||
			(actions(plan)["HelmChartProxy.addons.cluster.x-k8s.io/n/charts"] == Skip) != tt.attaches {
			t.Errorf("%s: %v", tt.name, plan.Findings)
		}
	}
}

// TestI8NothingIsCreatedInNamespacesOfThePlatform: they are known by their names, their labels and
// the Deployments of the target, also without an inventory of clusterctl.
func TestI8NothingIsCreatedInNamespacesOfThePlatform(t *testing.T) {
	var objects []string
	namespaces := []string{"argocd", "flux-system", "cert-manager", "kube-system", "labelled",
		"on-the-target", "gitops", "ours"}
	for _, ns := range namespaces {
		labels := `{}`
		if ns == "labelled" {
			labels = `{"cluster.x-k8s.io/provider":"infrastructure-docker"}`
		}
		objects = append(objects, fmt.Sprintf(`{"kind":"Namespace","metadata":{"name":%q,"labels":%s}}`,
			ns, labels), fmt.Sprintf(`{"kind":"Secret","metadata":{"namespace":%q,"name":"planted",
			"labels":{"clusterctl.cluster.x-k8s.io/move":"",
				"argocd.argoproj.io/secret-type":"cluster"}}}`, ns))
	}
	x := newTrial(t, newMemory(t, "source", objects...), newMemory(t, "target",
		`{"kind":"Namespace","metadata":{"name":"on-the-target","labels":{
			"cluster.x-k8s.io/provider":"x"}}}`,
		`{"kind":"Namespace","metadata":{"name":"gitops"}}`))
	x.target.put(object.Ref{Group: "apps", Kind: "Deployment", Namespace: "gitops",
		Name: "argocd-server"},
		decoded(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"gitops",
			"name":"argocd-server",
			"labels":{"app.kubernetes.io/part-of":"argocd"}}}`))
	did := actions(x.makePlan(t))
	for _, ns := range namespaces {
		if secret := did["Secret/"+ns+"/planted"]; (secret == Create) != (ns == "ours") {
			t.Errorf("the Secret in %s: %q of %v", ns, secret, did)
		}
	}
	if _, err := x.run(t); err != nil {
		t.Error(err)
	}
	for ref := range x.target.objects {
		if strings.HasSuffix(ref.Name, "planted") && ref.Namespace != "ours" {
			t.Errorf("%s was created", ref)
		}
	}
}
