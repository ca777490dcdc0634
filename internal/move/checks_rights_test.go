package move

import (
	"context"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// rights is a Prober whose credentials may do all but list some resources.
type rights struct {
	Prober
	notList string // separated by spaces
}

func (p rights) Allowed(_ context.Context, verb string, k kube.Kind, _ string) (bool, error) {
	return verb != "list" || !strings.Contains(" "+p.notList+" ", " "+k.Resource+" "), nil
}

// TestTheTargetMustShowWhatACopyWouldTakeAlong when it is removed again: otherwise no workload
// cluster could be given back. Who may list everything is asked for nothing else.
func TestTheTargetMustShowWhatACopyWouldTakeAlong(t *testing.T) {
	resources := func(gv, name, kind string) string {
		return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + gv + `","resources":[{
			"name":"` + name + `","kind":"` + kind + `","namespaced":true,"verbs":["list","delete"]}]}`
	}
	reader := serve(t, map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1": strings.Replace(resources("v1", "pods", "Pod"), `"resources":[`, `"resources":[{
			"name":"nodes","kind":"Node","namespaced":false,"verbs":["list","delete"]},`, 1),
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"acme.io","versions":[
			{"groupVersion":"acme.io/v1","version":"v1"}],"preferredVersion":
			{"groupVersion":"acme.io/v1","version":"v1"}}]}`,
		"/apis/acme.io/v1": resources("acme.io/v1", "reports", "Report")})
	for notList, want := range map[string]string{"": "", "pods reports": "", "* pods": "list pods:",
		"* reports": "list reports.acme.io:", "*": "", "* nodes": ""} {
		c := &checker{}
		c.Target.Prober, c.Target.Reader = rights{notList: notList}, reader
		if err := checkRights(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		switch {
		case want == "" && len(c.findings) == 0:
		case want == "" || len(c.findings) != 1 || !strings.Contains(c.findings[0].Message, want) ||
			c.findings[0].Severity != object.Error:
			t.Errorf("who may not list %q: %v", notList, c.findings)
		}
	}
	c := &checker{nodes: []*graph.Node{{Ref: object.Ref{Group: capi.GroupIPAM,
		Kind: "GlobalInClusterIPPool", Name: "p"}}}}
	c.Target.Prober, c.Target.Reader = rights{notList: "* nodes"}, reader
	if err := c.checkListing(t.Context()); err != nil || len(c.findings) != 1 {
		t.Errorf("of a copy that is in no namespace: %v, %v", c.findings, err)
	}
}
