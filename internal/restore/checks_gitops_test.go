package restore

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

var kustomizations = kube.Kind{GroupKind: object.GroupKind{Group: "kustomize.toolkit.fluxcd.io",
	Kind: "Kustomization"}, Version: "v1", Resource: "kustomizations", Namespaced: true,
	Served: []string{"v1"}}

// TestPlanNamesTheToolsThatWillMeetWhatIsRestored: an active Kustomization of the target, and a
// cluster autoscaler there, are warnings. They keep nothing from being restored in an outage, and
// neither does a kind that cannot be listed.
func TestPlanNamesTheToolsThatWillMeetWhatIsRestored(t *testing.T) {
	x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w")),
		newMemory(t, "target", needsNamespace))
	for _, u := range x.source.objects {
		if u.GetKind() == "Cluster" {
			u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps",
				"kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		}
	}
	x.load(t)
	x.target.kinds = append(slices.Clone(memoryKinds), kustomizations)
	x.target.put(object.Ref{Group: kustomizations.Group, Kind: kustomizations.Kind,
		Namespace: "flux-system", Name: "apps"},
		decoded(t, `{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization",
			"metadata":{"namespace":"flux-system","name":"apps"},"spec":{}}`))
	x.target.put(object.Ref{Group: "apps", Kind: "Deployment", Namespace: "n", Name: "autoscaler"},
		decoded(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"n",
			"name":"autoscaler"},"spec":{"template":{"spec":{"containers":[
			{"args":["--cloud-provider=clusterapi"]}]}}}}`))
	p := x.makePlan(t)
	for code, words := range map[object.Code]string{
		object.CodeGitOpsOwner: "Kustomization flux-system/apps is not suspended",
		object.CodeAutoscaler:  "works on the Cluster API of the target",
	} {
		if !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
			return f.Code == code && f.Severity == object.Warning && f.Unit == "n/w" &&
				strings.Contains(f.Message, words)
		}) {
			t.Errorf("no warning %s with %q: %v", code, words, p.Findings)
		}
	}
	if p.Units[0].Blocked {
		t.Errorf("blocked by %v", p.Findings)
	}

	x.target.refuseList = func(k kube.Kind) error {
		if k.GroupKind == kustomizations.GroupKind {
			return errors.New("forbidden")
		}
		return nil
	}
	p = x.makePlan(t)
	if !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
		return f.Code == object.CodeGitOpsUnread && f.Severity == object.Warning
	}) || p.Units[0].Blocked {
		t.Errorf("a kind that cannot be listed: %v", p.Findings)
	}
}

// TestPlanNamesSecretsWithAKubeconfigOfTheSource: an autoscaler in a workload cluster uses one, and
// would work on a source that comes back. What Cluster API made does not count.
func TestPlanNamesSecretsWithAKubeconfigOfTheSource(t *testing.T) {
	const server = "https://mgmt.example.org:6443"
	kubeconfig := base64.StdEncoding.EncodeToString([]byte(`apiVersion: v1
kind: Config
clusters: [{name: mgmt, cluster: {server: "` + server + `"}}]
contexts: [{name: mgmt, context: {cluster: mgmt, user: mgmt}}]
users: [{name: mgmt, user: {token: none}}]
current-context: mgmt
`))
	secret := func(name, kind string) string {
		return `{"kind":"Secret","metadata":{"namespace":"n","name":"` + name + `","labels":{
			"cluster.x-k8s.io/cluster-name":"w"}},"type":"` + kind + `","data":{"value":"` +
			kubeconfig + `"}}`
	}
	for _, api := range []*kube.API{{Server: server}, {Server: "https://other.example.org"}, nil} {
		x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"),
			secret("w-cloud-config", "Opaque"), secret("w-kubeconfig", "cluster.x-k8s.io/secret")),
			newMemory(t, "target", needsNamespace))
		x.api = api
		x.load(t)
		p := x.makePlan(t)
		var named []string
		for _, f := range p.Findings {
			if f.Code == object.CodeAutoscaler && f.Severity == object.Warning && f.Unit == "n/w" {
				named = append(named, f.Ref.Name)
			}
		}
		var want []string
		if api != nil && api.Server == server {
			want = []string{"w-cloud-config"}
		}
		if !slices.Equal(named, want) || p.Units[0].Blocked {
			t.Errorf("source %v: named %v, want %v; findings %v", api, named, want, p.Findings)
		}
	}
}
