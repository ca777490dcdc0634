package restore

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// realEtcd is a restore of the workload cluster n/w, of which the snapshot has the CA of its etcd,
// and the Machines cp and worker. It has these Nodes, the etcd members, and one Pod of etcd,
// etcd-cp.
func realEtcd(t *testing.T, nodes []workload.Node, members ...workload.EtcdMember) (*trial,
	*workloadtest.Etcd) {
	t.Helper()
	s, ca := workloadtest.New(t, workloadtest.NewCA(t)), workloadtest.NewCA(t)
	s.Set("w", nodes, "cp")
	etcd := s.ServeEtcd(t, ca, members...)
	return real(t, s, realControlPlane, realEtcdCA("w", ca)), etcd
}

// realEtcdCA is the Secret with the CA of the etcd of a workload cluster.
func realEtcdCA(cluster string, ca *workloadtest.CA) string {
	return strings.Replace(realSecret(cluster, "etcd", "tls.crt", ca.Cert), `"data":{`,
		fmt.Sprintf(`"data":{"tls.key":%q,`, base64.StdEncoding.EncodeToString(ca.Key)), 1)
}

// TestI1EtcdMembersAreComparedWithMachines: etcd knows more than its Pods, and a finding says which
// of the two was seen.
func TestI1EtcdMembersAreComparedWithMachines(t *testing.T) {
	cp, worker := realNode("cp", true), realNode("worker", false)
	member := func(name string) workload.EtcdMember { return workload.EtcdMember{Name: name} }
	for _, tt := range []struct {
		name    string
		nodes   []workload.Node
		members []workload.EtcdMember
		code    object.Code
		says    string
	}{
		{"nothing happened since", []workload.Node{cp, worker}, []workload.EtcdMember{member("cp")}, "",
			""},
		{"a member whose Pod and Node are gone", []workload.Node{cp, worker},
			[]workload.EtcdMember{member("cp"), member("cp2")}, object.CodeControlPlaneUnknown,
			`control plane etcd member "cp2" is there`},
		{"a learner", []workload.Node{cp, worker},
			[]workload.EtcdMember{member("cp"), {Name: "cp2", Learner: true}},
			object.CodeControlPlaneUnknown, `etcd member "cp2", a learner`},
		{"a member with its Node", []workload.Node{cp, worker, realNode("cp2", true)},
			[]workload.EtcdMember{member("cp"), member("cp2")}, object.CodeControlPlaneUnknown,
			`Node "cp2" (provider ID "p://cp2", etcd member "cp2")`},
		{"a member whose Node is gone", []workload.Node{worker}, []workload.EtcdMember{member("cp")},
			object.CodeMachinesGone, `Node "cp", etcd member "cp" is left`},
		{"an etcd that gives no answer", []workload.Node{worker}, nil, object.CodeMachinesGone,
			`Node "cp", etcd Pod "etcd-cp" is left`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, etcd := realEtcd(t, tt.nodes, tt.members...)
			plan := x.makePlan(t)
			if etcd.Asked() == 0 {
				t.Error("etcd was not asked")
			}
			if tt.code == "" {
				if plan.Blocked || len(found(plan, object.CodeControlPlaneUnknown)) > 0 {
					t.Errorf("findings %v", plan.Findings)
				}
				return
			}
			list := found(plan, tt.code)
			if len(list) != 1 || !plan.Units[0].Blocked || !strings.Contains(list[0].Message, tt.says) {
				t.Errorf("findings %v, want %s", plan.Findings, tt.says)
			}
			compared := found(plan, object.CodeMachinesCompared)
			byPods := len(compared) == 1 && strings.Contains(compared[0].Message,
				"the etcd of 1 could not be asked, so that its Pods counted, the first is n/w")
			if byPods != (tt.members == nil) {
				t.Errorf("findings %v", compared)
			}
		})
	}
}

// TestI1EtcdIsAskedAgainRightBeforeARelease: a member came after the plan, and its Node not yet.
func TestI1EtcdIsAskedAgainRightBeforeARelease(t *testing.T) {
	x, etcd := realEtcd(t, []workload.Node{realNode("cp", true), realNode("worker", false)},
		workload.EtcdMember{Name: "cp"})
	x.target.refuse = func(*unstructured.Unstructured) error {
		etcd.Set(workload.EtcdMember{Name: "cp"}, workload.EtcdMember{Name: "cp2", Learner: true})
		return nil
	}
	failures, err := x.run(t)
	if err == nil || x.released(t) != "" || len(failures) != 1 ||
		!strings.Contains(failures[0], `etcd member "cp2", a learner`) {
		t.Errorf("released %q: %v %q", x.released(t), err, failures)
	}
}

// TestEtcdThatKubeadmDoesNotRunIsNotAsked: nothing of Cluster API removes its members.
func TestEtcdThatKubeadmDoesNotRunIsNotAsked(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp", true), realNode("worker", false)}, "cp")
	etcd := s.ServeEtcd(t, workloadtest.NewCA(t), workload.EtcdMember{Name: "other"})
	x := real(t, s)
	plan := x.makePlan(t)
	for _, r := range s.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
	}
	if plan.Blocked || etcd.Asked() > 0 {
		t.Errorf("findings %v", plan.Findings)
	}
}
