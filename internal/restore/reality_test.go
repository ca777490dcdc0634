package restore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// realMachine is a Machine of the workload cluster n/<cluster> whose Node has its name.
func realMachine(cluster, name string, controlPlane bool, more string) string {
	label := ""
	if controlPlane {
		label = `,"cluster.x-k8s.io/control-plane":""`
	}
	return fmt.Sprintf(`{"kind":"Machine","metadata":{"namespace":"n","name":%q,
		"labels":{"cluster.x-k8s.io/cluster-name":%q%s},
		"ownerReferences":[{"kind":"Cluster","name":%q}]%s},"spec":{"clusterName":%q,
			"providerID":"p://%s"},"status":{"nodeRef":{"name":%q}}}`,
		name, cluster, label, cluster, more, cluster, name, name)
}

func realNode(name string, controlPlane bool) workload.Node {
	return workload.Node{Name: name, ProviderID: "p://" + name, ControlPlane: controlPlane}
}

func realSecret(cluster, purpose, key string, value []byte) string {
	return fmt.Sprintf(`{"kind":"Secret","metadata":{"namespace":"n","name":"%s-%s",
		"labels":{"cluster.x-k8s.io/cluster-name":%q},
		"ownerReferences":[{"kind":"Cluster","name":%q}]},"type":"cluster.x-k8s.io/secret",
			"data":{%q:%q}}`, cluster,
		purpose, cluster, cluster, key, base64.StdEncoding.EncodeToString(value))
}

func realCluster(name string) string {
	return fmt.Sprintf(`{"kind":"Cluster","metadata":{"namespace":"n","name":%q},"spec":{}}`, name)
}

// real is a restore of the workload cluster n/w: the Machines cp and worker, and a kubeconfig of s.
func real(t *testing.T, s *workloadtest.Server, more ...string) *trial {
	t.Helper()
	objects := append([]string{needsNamespace, realCluster("w"), realMachine("w", "cp", true, ""),
		realMachine("w", "worker", false, ""), realSecret("w", "kubeconfig", "value",
			s.Kubeconfig(t, time.Now().Add(time.Hour)))}, more...)
	return newTrial(t, newMemory(t, "source", objects...), newMemory(t, "target"))
}

func found(p *Plan, code object.Code) (list []object.Finding) {
	for _, f := range p.Findings {
		if f.Code == code {
			list = append(list, f)
		}
	}
	return list
}

// TestI1APlanComparesMachinesWithNodes: a snapshot is older than the workload cluster.
func TestI1APlanComparesMachinesWithNodes(t *testing.T) {
	cp, worker := realNode("cp", true), realNode("worker", false)
	forced := Spec{Force: object.Forced{object.CodeMachinesGone: ""}}
	for _, tt := range []struct {
		name     string
		nodes    []workload.Node
		members  []string
		spec     Spec
		code     object.Code
		severity object.Severity
		says     []string
	}{
		{"nothing happened since", []workload.Node{cp, worker}, []string{"cp"}, Spec{}, "", 0, nil},
		{"a scale-up", []workload.Node{cp, worker, realNode("new", false)}, []string{"cp"}, Spec{},
			object.CodeNodesUnknown, object.Warning, []string{`"new"`, "p://new"}},
		{"a scale-down", []workload.Node{cp}, []string{"cp"}, Spec{}, object.CodeMachinesGone,
			object.Error, []string{`Node "worker"`, "p://worker"}},
		{"a scale-down, forced", []workload.Node{cp}, []string{"cp"},
			forced, object.CodeMachinesGone, object.Warning, nil},
		{"a scale-down, and all stays paused", []workload.Node{cp}, []string{"cp"}, Spec{NoRelease: true},
			object.CodeMachinesGone, object.Warning, nil},
		{"a Node made again with another provider ID", []workload.Node{cp, {Name: "worker",
			ProviderID: "p://2"}},
			nil, Spec{}, object.CodeMachinesGone, object.Error, nil},
		// The host of a Machine got another one, as bare metal does.
		{"a control plane Node of another name on the same host", []workload.Node{{Name: "cp2",
			ProviderID: "p://cp", ControlPlane: true}, worker}, []string{"cp2"}, Spec{},
			object.CodeControlPlaneUnknown, object.Error, []string{`"cp2"`, "p://cp"}},
		{"a control plane scaled up", []workload.Node{cp, worker, realNode("cp2", true)}, []string{"cp",
			"cp2"},
			forced, object.CodeControlPlaneUnknown, object.Error, []string{`"cp2"`, "p://cp2", "newer-cp2"}},
		{"a control plane rolled out", []workload.Node{realNode("cp2", true), worker}, []string{"cp2"},
			Spec{},
			object.CodeControlPlaneUnknown, object.Error, []string{`"cp2"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := workloadtest.New(t, workloadtest.NewCA(t))
			s.Set("w", tt.nodes, tt.members...)
			x := real(t, s)
			x.spec = tt.spec
			x.spec.SourceIsGone = true
			x.newerWith = func(r object.Ref) string { return "newer-" + r.Name }
			plan := x.makePlan(t)
			if len(found(plan, object.CodeMachinesCompared)) != 1 {
				t.Errorf("not compared: %v", plan.Findings)
			}
			if tt.code == "" {
				if plan.Blocked || len(found(plan, object.CodeMachinesGone))+
					len(found(plan, object.CodeControlPlaneUnknown))+len(found(plan,
					object.CodeNodesUnknown)) > 0 {
					t.Errorf("findings %v", plan.Findings)
				}
				return
			}
			list := found(plan, tt.code)
			if len(list) != 1 || list[0].Severity != tt.severity || list[0].Unit != "n/w" ||
				plan.Units[0].Blocked != (tt.severity == object.Error) {
				t.Fatalf("findings %v", plan.Findings)
			}
			for _, word := range tt.says {
				if !strings.Contains(list[0].String(), word) {
					t.Errorf("%s does not say %s", list[0], word)
				}
			}
		})
	}
}

// TestI1AControlPlaneWithoutMachinesInTheSnapshotIsNotMadeTwice: the snapshot is of a time before
// the first Machine of the control plane, whose controller would make another one.
func TestI1AControlPlaneWithoutMachinesInTheSnapshotIsNotMadeTwice(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
	plan := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"), realControlPlane,
		realSecret("w", "ca", "tls.crt", s.CA.Cert),
		realSecret("w", "kubeconfig", "value", s.Kubeconfig(t, time.Now().Add(time.Hour)))),
		newMemory(t, "target")).makePlan(t)
	if list := found(plan, object.CodeControlPlaneUnknown); len(list) != 1 || !plan.Blocked {
		t.Errorf("blocked %v: %v", plan.Blocked, plan.Findings)
	}
}

// TestAMachineThatWasBeingDeletedIsSaidToBeSo: its Node is gone, and the snapshot knows why.
func TestAMachineThatWasBeingDeletedIsSaidToBeSo(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp", true), realNode("worker", false)})
	x := real(t, s, realMachine("w", "old", false, `,"deletionTimestamp":"2026-11-22T12:00:00Z"`))
	list := found(x.makePlan(t), object.CodeMachinesGone)
	if len(list) != 1 || !strings.Contains(list[0].Message, "being deleted when the snapshot") {
		t.Errorf("findings %v", list)
	}
}

// TestWorkloadClustersThatDoNotAnswerAreOneWarning: a host outside of their network plans all the
// same.
func TestWorkloadClustersThatDoNotAnswerAreOneWarning(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	closed := strings.ReplaceAll(string(s.Kubeconfig(t, time.Now().Add(time.Hour))), s.URL,
		"https://127.0.0.1:1")
	var objects []string
	for i := range 5 {
		name := fmt.Sprint("w", i)
		objects = append(objects, realCluster(name), realMachine(name, name+"-m", true, ""),
			realSecret(name, "kubeconfig", "value", []byte(closed)))
	}
	x := newTrial(t, newMemory(t, "source", append(objects, needsNamespace)...), newMemory(t,
		"target"))
	plan := x.makePlan(t)
	list := found(plan, object.CodeRealityUnknown)
	if plan.Blocked || len(list) != 1 || !strings.Contains(list[0].Message, "5 of 5") ||
		!strings.Contains(list[0].Message, "n/w0: connection refused") {
		t.Errorf("blocked %v: %v", plan.Blocked, plan.Findings)
	}
	if _, err := x.run(t); err != nil || x.released(t) != "n/w0 n/w1 n/w2 n/w3 n/w4" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}

const realControlPlane = `{"kind":"KubeadmControlPlane","metadata":{"namespace":"n","name":"w",
	"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{}}`

// TestKubeconfigsAndCAsAreChecked: without an answer of the workload cluster, and with one.
func TestKubeconfigsAndCAsAreChecked(t *testing.T) {
	ca, other := workloadtest.NewCA(t), workloadtest.NewCA(t)
	s := workloadtest.New(t, ca)
	again := workloadtest.New(t, other)
	good := s.Kubeconfig(t, time.Now().Add(time.Hour))
	made := []byte(strings.Replace(string(good), s.URL, again.URL, 1)) // at the same address
	for _, tt := range []struct {
		name       string
		kubeconfig []byte
		ca         []byte
		code       object.Code
		severity   object.Severity
	}{
		{"missing", nil, ca.Cert, object.CodeKubeconfigMissing, object.Warning},
		{"junk", []byte("{"), ca.Cert, object.CodeKubeconfigInvalid, object.Warning},
		{"expired", s.Kubeconfig(t, time.Now().Add(-time.Minute)), ca.Cert, object.CodeKubeconfigExpired,
			object.Warning},
		{"swapped CA", good, other.Cert, object.CodeCAMismatch, object.Error},
		{"a workload cluster made again", made, ca.Cert, object.CodeCAMismatch, object.Error},
	} {
		objects := []string{needsNamespace, realControlPlane, realCluster("w"),
			realSecret("w", "ca", "tls.crt", tt.ca)}
		if tt.kubeconfig != nil {
			objects = append(objects, realSecret("w", "kubeconfig", "value", tt.kubeconfig))
		}
		plan := newTrial(t, newMemory(t, "source", objects...), newMemory(t, "target")).makePlan(t)
		if list := found(plan, tt.code); len(list) != 1 || list[0].Severity != tt.severity ||
			list[0].Unit != "n/w" {
			t.Errorf("%s: %v", tt.name, plan.Findings)
		}
	}
	if n := len(again.Requests()); n > 0 {
		t.Errorf("another server got %d requests with credentials", n)
	}
}

// TestI1RealityIsComparedAgainRightBeforeARelease: a control plane that was rolled out after the
// plan is not released.
func TestI1RealityIsComparedAgainRightBeforeARelease(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp", true), realNode("worker", false)}, "cp")
	x := real(t, s)
	x.target.refuse = func(u *unstructured.Unstructured) error {
		s.Set("w", []workload.Node{realNode("cp2", true), realNode("worker", false)}, "cp2")
		return nil
	}
	failures, err := x.run(t)
	if err == nil || x.released(t) != "" || len(failures) != 1 ||
		!strings.Contains(failures[0], string(object.CodeControlPlaneUnknown)) {
		t.Errorf("released %q: %v %q", x.released(t), err, failures)
	}
}

// TestI1WhatAnsweredInThePlanIsAskedAgainHoweverManyAreSilent: workload clusters of another network
// that do not answer say nothing of one that did.
func TestI1WhatAnsweredInThePlanIsAskedAgainHoweverManyAreSilent(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp", true), realNode("worker", false)}, "cp")
	closed := strings.ReplaceAll(string(s.Kubeconfig(t, time.Now().Add(time.Hour))), s.URL,
		"https://127.0.0.1:1")
	var silent []string
	for i := range mostSilent + 1 {
		name := fmt.Sprintf("a%02d", i) // before n/w
		silent = append(silent, realCluster(name), realMachine(name, name+"-m", true, ""),
			realSecret(name, "kubeconfig", "value", []byte(closed)))
	}
	x := real(t, s, silent...)
	x.tuning.Concurrency = 1
	x.target.refuse = func(*unstructured.Unstructured) error {
		s.Set("w", []workload.Node{realNode("cp2", true), realNode("worker", false)}, "cp2")
		return nil
	}
	if _, err := x.run(t); err == nil || strings.Contains(x.released(t), "n/w") {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}

// TestMachinesThatAreGoneAreHeldFromRemediationUntilPostFlight: the annotation is there when the
// unit is released, and gone afterwards, but for the one that was there before.
func TestMachinesThatAreGoneAreHeldFromRemediationUntilPostFlight(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
	x := real(t, s, realMachine("w", "skipped", false,
		`,"annotations":{"cluster.x-k8s.io/skip-remediation":"by hand"}`))
	x.spec.Force = object.Forced{object.CodeMachinesGone: ""}
	var atRelease []string
	x.target.onList = func(k kube.Kind, _ kube.ListOptions) {
		if x.released(t) != "" && atRelease == nil {
			atRelease = x.skipsRemediation()
		}
	}
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	if want := []string{"skipped", "worker"}; !slices.Equal(atRelease, want) {
		t.Errorf("held at the release: %q, want %q", atRelease, want)
	}
	if want := []string{"skipped"}; !slices.Equal(x.skipsRemediation(), want) {
		t.Errorf("held afterwards: %q, want %q", x.skipsRemediation(), want)
	}
}

// TestAMachineThatGoesBetweenTwoRunsIsHeldToo: the first run held another one, and died before the
// release.
func TestAMachineThatGoesBetweenTwoRunsIsHeldToo(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	cp, later := realNode("cp", true), realNode("later", false)
	s.Set("w", []workload.Node{cp, later}, "cp")
	x := real(t, s, realMachine("w", "later", false, ""))
	x.spec.Force = object.Forced{object.CodeMachinesGone: ""}
	x.hooks.BeforeRelease = func(context.Context, Unit) error { return errors.New("died") }
	if _, err := x.run(t); err == nil {
		t.Fatal("it was released")
	}
	x.hooks.BeforeRelease = nil
	s.Set("w", []workload.Node{cp}, "cp")
	var atRelease []string
	x.target.onList = func(kube.Kind, kube.ListOptions) {
		if x.released(t) != "" && atRelease == nil {
			atRelease = x.skipsRemediation()
		}
	}
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	if want := []string{"later", "worker"}; !slices.Equal(atRelease, want) {
		t.Errorf("held at the release: %q, want %q", atRelease, want)
	}
	if names := x.skipsRemediation(); len(names) > 0 {
		t.Errorf("held afterwards: %q", names)
	}
}

// TestAMachineThatALostHostHoldsIsGivenBack: it was lost before the store had the record of that.
func TestAMachineThatALostHostHoldsIsGivenBack(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
	x := real(t, s)
	x.spec.Force = object.Forced{object.CodeMachinesGone: ""}
	x.begin(t)
	held := 0
	x.target.onCreate = func(u *unstructured.Unstructured) {
		if u.GetName() == "worker" {
			capi.Annotate(u.Object, capi.AnnotationSkipRemediation, heldFor+string(x.id))
			held++
		}
	}
	if failures, err := x.run(t); err != nil || held != 1 {
		t.Fatalf("%d held: %v: %q", held, err, failures)
	}
	if names := x.skipsRemediation(); len(names) > 0 {
		t.Errorf("held afterwards: %q", names)
	}
}

// skipsRemediation returns the names of the objects that are held from remediation.
func (x *trial) skipsRemediation() (names []string) {
	x.target.mu.Lock()
	defer x.target.mu.Unlock()
	for ref, u := range x.target.objects {
		if _, has := u.GetAnnotations()[capi.AnnotationSkipRemediation]; has {
			names = append(names, ref.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestI1TheSourcesOwnClusterIsKnownByItsCAAlone: its kubeconfig cannot be used.
func TestI1TheSourcesOwnClusterIsKnownByItsCAAlone(t *testing.T) {
	ca := workloadtest.NewCA(t)
	x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("own"), realControlPlane,
		strings.Replace(realControlPlane, `"name":"w",
	"ownerReferences":[{"kind":"Cluster","name":"w"}]`,
			`"name":"own","ownerReferences":[{"kind":"Cluster","name":"own"}]`, 1),
		realCluster("w"), realSecret("own", "ca", "tls.crt", ca.Cert),
		realSecret("own", "kubeconfig", "value", []byte("{"))), newMemory(t, "target"))
	x.snapshot.About.API = &kube.API{Server: "https://127.0.0.1:1",
		CA: workload.KeyIDs(workload.Certificates(ca.Cert))}
	plan := x.makePlan(t)
	if list := found(plan, object.CodeOwnCluster); len(list) != 1 || list[0].Unit != "n/own" {
		t.Errorf("findings %v", plan.Findings)
	}
}

// TestI1TheSourcesOwnClusterIsRestoredAndStaysPaused: it is known by the CA and the address that
// the snapshot recorded, when the source is dead, and by its identity when it answers.
func TestI1TheSourcesOwnClusterIsRestoredAndStaysPaused(t *testing.T) {
	for _, answers := range []bool{false, true} {
		ca := workloadtest.NewCA(t)
		s := workloadtest.New(t, ca)
		text := s.Kubeconfig(t, time.Now().Add(time.Hour))
		x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("own"), realCluster("w"),
			realSecret("own", "kubeconfig", "value", text)), newMemory(t, "target"))
		if answers {
			s.Set("source", nil)
		} else {
			s.Set("somebody else", nil)
			x.snapshot.About.API = &kube.API{Server: s.URL,
				CA: workload.KeyIDs(workload.Certificates(ca.Cert))}
		}
		if _, err := x.run(t); err != nil {
			t.Fatalf("it counts as a failure: %v", err)
		}
		if x.released(t) != "n/w" || x.target.get(t, "Cluster.cluster.x-k8s.io/n/own") == nil {
			t.Errorf("answers %v: released %q, have %v", answers, x.released(t),
				slices.Collect(maps.Keys(x.target.objects)))
		}
		if list := found(x.plan, object.CodeOwnCluster); len(list) != 1 || list[0].Unit != "n/own" {
			t.Errorf("answers %v: findings %v", answers, x.plan.Findings)
		}
	}
}

// TestAHostedControlPlaneBlocksItsUnit: its etcd was lost with the source.
func TestAHostedControlPlaneBlocksItsUnit(t *testing.T) {
	for _, force := range []object.Forced{nil, {object.CodeHostedControlPlane: ""}} {
		x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"),
			strings.Replace(realControlPlane, "KubeadmControlPlane", "K0smotronControlPlane", 1)),
			newMemory(t, "target"))
		x.spec.Force = force
		plan := x.makePlan(t)
		if list := found(plan, object.CodeHostedControlPlane); len(list) != 1 || list[0].Unit != "n/w" ||
			plan.Units[0].Blocked != (force == nil) {
			t.Errorf("force %v: %v", force, plan.Findings)
		}
	}
}

// TestAWorkloadClusterAtWorkOnTheTargetIsNotCompared: its controllers have replaced Machines since
// an earlier restore, which does not block the units that are restored again with it.
func TestAWorkloadClusterAtWorkOnTheTargetIsNotCompared(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	s.Set("w", []workload.Node{realNode("cp2", true)}, "cp2")
	x := real(t, s)
	x.target = newMemory(t, "target", needsNamespace, realCluster("w"))
	plan := x.makePlan(t)
	if list := append(found(plan, object.CodeMachinesGone), found(plan,
		object.CodeControlPlaneUnknown)...); len(list) > 0 {
		t.Errorf("findings %v", list)
	}
}
