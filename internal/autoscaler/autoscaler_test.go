package autoscaler

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// deployments is a management cluster with these Deployments.
type deployments []string

func (d deployments) List(_ context.Context, _ kube.Kind, _ kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	for _, text := range d {
		if err := fn([]byte(text)); err != nil {
			return kube.ListResult{}, err
		}
	}
	return kube.ListResult{}, nil
}

func deployment(name, spec, container string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"kube-system","name":%q},"spec":{%s"template":{
		"spec":{"containers":[%s],"volumes":[{"name":"mgmt","secret":{"secretName":"mgmt-kubeconfig"}},
		{"name":"tmp","emptyDir":{}}]}}}}`, name, spec, container)
}

func TestFindKnowsEachFormOfTheFlagAndTheClusterItWorksOn(t *testing.T) {
	found, err := Find(t.Context(), deployments{
		deployment("args", "", `{"command":["/cluster-autoscaler"],"args":["--cloud-provider=clusterapi",
			"--node-group-auto-discovery=clusterapi:namespace=team-a,clusterName=web"]}`),
		deployment("two-words", "", `{"command":["./cluster-autoscaler","--cloud-provider","clusterapi",
			"--node-group-auto-discovery","clusterapi:clusterName=web"]}`),
		deployment("shell", "", `{"command":["sh","-c","exec ca --cloud-provider=clusterapi"]}`),
		deployment("other-cloud", "", `{"args":["--cloud-provider=aws"]}`),
		deployment("stopped", `"replicas":0,`, `{"args":["--cloud-provider=clusterapi"]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range found {
		got = append(got, a.Name+" "+a.InNamespace+"/"+a.Cluster+" "+strings.Join(a.Secrets, ","))
	}
	if !slices.Equal(got, []string{"args team-a/web mgmt-kubeconfig", "two-words /web mgmt-kubeconfig",
		"shell / mgmt-kubeconfig"}) {
		t.Errorf("found %q", got)
	}
	units := []string{"team-a/web", "team-b/web", "team-b/db"}
	var on []string
	for _, a := range found {
		on = append(on, strings.Join(a.WorksOn(units), ","))
	}
	if !slices.Equal(on, []string{"team-a/web", "team-a/web,team-b/web",
		"team-a/web,team-b/web,team-b/db"}) {
		t.Errorf("works on %q", on)
	}
}

func TestFindingNamesTheCommandTheUnitsAndTheSecretOfTheSource(t *testing.T) {
	found, err := Find(t.Context(), deployments{
		deployment("ca", "", `{"args":["--cloud-provider=clusterapi"]}`),
		deployment("other", "", `{"args":["--cloud-provider=clusterapi",
			"--node-group-auto-discovery=clusterapi:clusterName=elsewhere"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	findings := Findings(found, []string{"team-a/web", "team-b/db"}, "source",
		func(namespace, name string) bool { return namespace+"/"+name == "kube-system/mgmt-kubeconfig" })
	if len(findings) != 1 {
		t.Fatalf("findings %v", findings)
	}
	f := findings[0]
	if f.Code != object.CodeAutoscaler || f.Unit != "team-a/web" || !f.Concerns("team-b/db") ||
		!strings.Contains(f.Hint, "kubectl scale deployment -n kube-system ca --replicas=0") ||
		!strings.Contains(f.Message, "Secret mgmt-kubeconfig, which has a kubeconfig of the source") {
		t.Errorf("finding %v", f)
	}
	if f := Unread("target", errors.New("forbidden")); f.Severity != object.Warning ||
		!strings.Contains(f.Message, "target") {
		t.Errorf("finding %v", f)
	}
}

func TestHasKubeconfigComparesServersAndNeverCountsThoseOfClusterAPI(t *testing.T) {
	kubeconfig := func(server string) string {
		return `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "` + server + `"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
users: [{name: u, user: {token: secret}}]
`
	}
	secret := func(kind, key, text string) []byte {
		return fmt.Appendf(nil, `{"type":%q,"data":{"other":"AAEC",%q:%q}}`, kind, key,
			base64.StdEncoding.EncodeToString([]byte(text)))
	}
	source := &kube.API{Server: "https://mgmt.example.org:6443"}
	for _, tt := range []struct {
		name   string
		secret []byte
		want   bool
	}{
		{"of the source", secret("Opaque", "cloud-config", kubeconfig("https://mgmt.example.org:6443")),
			true},
		{"of another cluster", secret("Opaque", "value", kubeconfig("https://web.example.org:6443")),
			false},
		{"that Cluster API made", secret("cluster.x-k8s.io/secret", "value",
			kubeconfig("https://mgmt.example.org:6443")), false},
		{"no kubeconfig", secret("Opaque", "value", "clusters: many"), false},
	} {
		if got := HasKubeconfig(tt.secret, source); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if HasKubeconfig(secret("Opaque", "value", kubeconfig("https://mgmt.example.org:6443")), nil) {
		t.Error("of a source whose address is not known")
	}
}
