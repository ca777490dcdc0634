package observe

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	coreGroup         = "cluster.x-k8s.io"
	controlPlaneGroup = "controlplane.cluster.x-k8s.io"
	infraGroup        = "infrastructure.cluster.x-k8s.io"
	clusterLabel      = "cluster.x-k8s.io/cluster-name"
)

// Machine has the fields of a Machine that a restore or a move must not change.
type Machine struct {
	Namespace, Name string
	Cluster         string // name of its workload cluster
	ControlPlane    bool
	ProviderID      string
	Node            string // name of its Node
	Infra           string // kind and name of its infrastructure object
}

// Machines returns all Machines, sorted by namespace and name.
func Machines(objects Objects) []Machine {
	var machines []Machine
	for _, o := range objects.Of(coreGroup, "Machine") {
		_, controlPlane := o.GetLabels()["cluster.x-k8s.io/control-plane"]
		machines = append(machines, Machine{
			Namespace: o.GetNamespace(), Name: o.GetName(),
			Cluster:      stringAt(o, "spec", "clusterName"),
			ControlPlane: controlPlane,
			ProviderID:   stringAt(o, "spec", "providerID"),
			Node:         stringAt(o, "status", "nodeRef", "name"),
			Infra: stringAt(o, "spec", "infrastructureRef", "kind") + " " +
				stringAt(o, "spec", "infrastructureRef", "name"),
		})
	}
	return machines
}

// CompareMachines reports which Machines are gone, new or describe another machine.
func CompareMachines(before, after Objects) []string {
	var problems []string
	is := map[string]Machine{}
	for _, m := range Machines(after) {
		is[m.Namespace+"/"+m.Name] = m
	}
	for _, was := range Machines(before) {
		key := was.Namespace + "/" + was.Name
		switch m, ok := is[key]; {
		case !ok:
			problems = append(problems, "Machine "+key+" is gone")
		case m != was:
			problems = append(problems, fmt.Sprintf("Machine %s was %+v and is %+v", key, was, m))
		}
		delete(is, key)
	}
	for key := range is {
		problems = append(problems, "Machine "+key+" is new")
	}
	slices.Sort(problems)
	return problems
}

// authorities are the name suffixes of the Secrets with the CAs and keys of a workload cluster.
var authorities = []string{"-ca", "-etcd", "-proxy", "-sa"}

// isAuthority reports whether o is a Secret with a CA or key of a workload cluster, by its name and
// its label.
func isAuthority(o *unstructured.Unstructured) bool {
	cluster := o.GetLabels()[clusterLabel]
	return o.GetKind() == "Secret" && cluster != "" &&
		slices.ContainsFunc(authorities, func(ending string) bool {
			return o.GetName() == cluster+ending
		})
}

// Authorities returns the Secrets with CAs and service account keys, with a hash of their values.
func Authorities(objects Objects) map[Ref]string {
	hashes := map[Ref]string{}
	for ref, o := range objects {
		if isAuthority(o) {
			hashes[ref] = text(o.Object["data"])
		}
	}
	return hashes
}

// Health reports what is not as healthy as before. In a workload cluster that was not paused, every
// Machine must be Ready, and the Cluster, its control plane and its MachineDeployments Available
// with all replicas, as reported by controllers after the release. In a paused one the conditions
// must be as before.
func Health(before, after Objects) []string {
	paused := map[string]bool{} // by namespace/name
	for _, o := range before.Of(coreGroup, "Cluster") {
		paused[o.GetNamespace()+"/"+o.GetName()] = specPaused(o)
	}
	var problems []string
	for _, watched := range []struct{ group, kind, condition string }{
		{coreGroup, "Cluster", "Available"},
		{controlPlaneGroup, "KubeadmControlPlane", "Available"},
		{coreGroup, "MachineDeployment", "Available"},
		{coreGroup, "Machine", "Ready"},
	} {
		for _, was := range before.Of(watched.group, watched.kind) {
			ref := RefOf(was)
			is, ok := after[ref]
			if !ok {
				problems = append(problems, ref.String()+" is gone")
				continue
			}
			var problem string
			if paused[was.GetNamespace()+"/"+clusterOf(was)] {
				problem = sameCondition(was, is, watched.condition)
			} else {
				problem = unhealthy(is, watched.condition)
			}
			if problem != "" {
				problems = append(problems, ref.String()+": "+problem)
			}
		}
	}
	return problems
}

// ControlPlanesReady returns the problems of Health that concern control planes.
func ControlPlanesReady(before, after Objects) []string {
	return slices.DeleteFunc(Health(before, after), func(problem string) bool {
		return !strings.HasPrefix(problem, "KubeadmControlPlane.")
	})
}

func clusterOf(o *unstructured.Unstructured) string {
	if o.GetKind() == "Cluster" {
		return o.GetName()
	}
	return o.GetLabels()[clusterLabel]
}

func sameCondition(was, is *unstructured.Unstructured, condition string) string {
	w, i := conditionOf(was, condition)["status"], conditionOf(is, condition)["status"]
	if w != i {
		return fmt.Sprintf("%s was %v and is %v", condition, w, i)
	}
	return ""
}

// unhealthy describes why an object is not healthy, or returns "". The condition must be of the
// object's generation. A restored status can be a copy of an old one, so the Paused condition must
// be False too: it was True until the release.
func unhealthy(o *unstructured.Unstructured, condition string) string {
	for _, want := range []struct{ condition, status string }{{"Paused", "False"},
		{condition, "True"}} {
		if got := conditionStatus(o, want.condition); got != want.status {
			return fmt.Sprintf("%s is %s", want.condition, got)
		}
	}
	if observed, found, _ := unstructured.NestedInt64(o.Object, "status",
		"observedGeneration"); found && observed != o.GetGeneration() {
		return fmt.Sprintf("generation %d is observed, not %d", observed, o.GetGeneration())
	}
	want, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		return ""
	}
	for _, field := range []string{"replicas", "readyReplicas", "availableReplicas",
		"upToDateReplicas"} {
		if got, _, _ := unstructured.NestedInt64(o.Object, "status", field); got != want {
			return fmt.Sprintf("%s is %d of %d", field, got, want)
		}
	}
	return ""
}

// conditionStatus is the status of a condition, "absent", or the status with a remark when it is of
// an older generation of the object.
func conditionStatus(o *unstructured.Unstructured, name string) string {
	condition := conditionOf(o, name)
	if condition == nil {
		return "absent"
	}
	status, _ := condition["status"].(string)
	if observed, ok := condition["observedGeneration"].(int64); ok && observed != o.GetGeneration() {
		return status + " at an older generation"
	}
	return status
}

func conditionOf(o *unstructured.Unstructured, name string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok && condition["type"] == name {
			return condition
		}
	}
	return nil
}

func stringAt(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// ConditionTrue reports whether a condition is True at the object's generation.
func ConditionTrue(o *unstructured.Unstructured, name string) bool {
	return conditionStatus(o, name) == "True"
}
