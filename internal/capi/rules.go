package capi

import (
	"github.com/mgmtd/mgmtd/internal/object"
)

// Rule says that objects of a kind name another object in a field.
type Rule struct {
	From object.GroupKind
	// Path is a gjson path that begins with "spec.". What it yields, a name or a reference
	// {apiGroup or apiVersion, kind, namespace, name}, or a list of these, is the object needed.
	Path string
	// To is the kind of the needed object where the field does not say it.
	To object.GroupKind
	// Owner makes it a soft owner: it is created before the object, as an owner is.
	Owner bool
}

// Rules are the reference fields of Cluster API core, kubeadm and IPAM, at v1beta2 and, where they
// differ, v1beta1. A test walks the schema of every installed CRD for fields that look like a
// reference and fails for one that is neither here nor among the exceptions. Sources: the types in
// sigs.k8s.io/cluster-api/api at v1.14.
var Rules = concat(
	[]Rule{
		{Cluster, "spec.topology.classRef", ClusterClass, true},
		{Cluster, "spec.infrastructureRef", object.GroupKind{}, false},
		{Cluster, "spec.controlPlaneRef", object.GroupKind{}, false},
		{Cluster, "spec.topology.controlPlane.healthCheck.remediation.templateRef", object.GroupKind{},
			false},
		{Cluster, "spec.topology.workers.machineDeployments.#.healthCheck.remediation.templateRef",
			object.GroupKind{}, false},
		{core("MachineHealthCheck"), "spec.remediation.templateRef", object.GroupKind{}, false},
		{core("MachineHealthCheck"), "spec.remediationTemplate", object.GroupKind{}, false},
		{KubeadmControlPlane, "spec.machineTemplate.spec.infrastructureRef", object.GroupKind{}, false},
		{KubeadmControlPlane, "spec.machineTemplate.infrastructureRef", object.GroupKind{}, false},
		{ClusterResourceSet, "spec.resources", object.GroupKind{}, false},
		{ClusterResourceSetBinding, "spec.bindings.#.clusterResourceSetName", ClusterResourceSet, false},
		{ClusterResourceSetBinding, "spec.clusterName", Cluster, true},
		{IPAddressClaim, "spec.poolRef", object.GroupKind{}, false},
		{IPAddress, "spec.poolRef", object.GroupKind{}, false},
		{IPAddress, "spec.claimRef", IPAddressClaim, true},
	},
	machineRules(Machine, "spec."),
	machineRules(core("MachineSet"), "spec.template.spec."),
	machineRules(core("MachineDeployment"), "spec.template.spec."),
	machineRules(core("MachinePool"), "spec.template.spec."),
	kubeadmRules(object.GroupKind{Group: GroupBootstrap, Kind: "KubeadmConfig"}, "spec."),
	kubeadmRules(object.GroupKind{Group: GroupBootstrap, Kind: "KubeadmConfigTemplate"},
		"spec.template.spec."),
	kubeadmRules(KubeadmControlPlane, "spec.kubeadmConfigSpec."),
	kubeadmRules(object.GroupKind{Group: GroupControlPlane, Kind: "KubeadmControlPlaneTemplate"},
		"spec.template.spec.kubeadmConfigSpec."),
	classRules(),
)

func core(kind string) object.GroupKind { return object.GroupKind{Group: GroupCore, Kind: kind} }

func machineRules(from object.GroupKind, spec string) []Rule {
	return []Rule{
		{from, spec + "infrastructureRef", object.GroupKind{}, false},
		{from, spec + "bootstrap.configRef", object.GroupKind{}, false},
		{from, spec + "bootstrap.dataSecretName", Secret, false},
	}
}

func kubeadmRules(from object.GroupKind, spec string) []Rule {
	return []Rule{
		{from, spec + "files.#.contentFrom.secret.name", Secret, false},
		{from, spec + "users.#.passwdFrom.secret.name", Secret, false},
	}
}

func classRules() []Rule {
	paths := []string{"spec.infrastructure.", "spec.controlPlane.",
		"spec.controlPlane.machineInfrastructure."}
	for _, workers := range []string{"machineDeployments", "machinePools"} {
		for _, part := range []string{"infrastructure.", "bootstrap."} {
			paths = append(paths, "spec.workers."+workers+".#."+part, "spec.workers."+workers+".#.template."+
				part)
		}
	}
	var rules []Rule
	for _, p := range paths {
		rules = append(rules, Rule{ClusterClass, p + "templateRef", object.GroupKind{}, false},
			Rule{ClusterClass, p + "ref", object.GroupKind{}, false})
	}
	for _, p := range []string{
		"spec.controlPlane.healthCheck.remediation.templateRef",
		"spec.controlPlane.machineHealthCheck.remediationTemplate",
		"spec.workers.machineDeployments.#.healthCheck.remediation.templateRef",
		"spec.workers.machineDeployments.#.machineHealthCheck.remediationTemplate",
	} {
		rules = append(rules, Rule{ClusterClass, p, object.GroupKind{}, false})
	}
	return rules
}

func concat(lists ...[]Rule) []Rule {
	var all []Rule
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
