package snapshot

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// API groups of Cluster API.
const (
	coreGroup         = "cluster.x-k8s.io"
	bootstrapGroup    = "bootstrap.cluster.x-k8s.io"
	controlPlaneGroup = "controlplane.cluster.x-k8s.io"
	addonsGroup       = "addons.cluster.x-k8s.io"
	ipamGroup         = "ipam.cluster.x-k8s.io"
	runtimeGroup      = "runtime.cluster.x-k8s.io"
)

// Kinds that the flows of this product know by name.
var (
	ClusterKind            = object.GroupKind{Group: coreGroup, Kind: "Cluster"}
	ClusterClassKind       = object.GroupKind{Group: coreGroup, Kind: "ClusterClass"}
	MachineKind            = object.GroupKind{Group: coreGroup, Kind: "Machine"}
	KubeadmControlPlane    = object.GroupKind{Group: controlPlaneGroup, Kind: "KubeadmControlPlane"}
	ResourceSetKind        = object.GroupKind{Group: addonsGroup, Kind: "ClusterResourceSet"}
	ResourceSetBindingKind = object.GroupKind{Group: addonsGroup, Kind: "ClusterResourceSetBinding"}
	ExtensionConfigKind    = object.GroupKind{Group: runtimeGroup, Kind: "ExtensionConfig"}
	ProviderKind           = object.GroupKind{Group: "clusterctl.cluster.x-k8s.io", Kind: "Provider"}
	namespaceKind          = kube.NamespaceKind.GroupKind
	secretKind             = kube.SecretKind.GroupKind
	configMapKind          = kube.ConfigMapKind.GroupKind
	ipClaimKind            = object.GroupKind{Group: ipamGroup, Kind: "IPAddressClaim"}
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
		{ClusterKind, "spec.topology.classRef", ClusterClassKind, true},
		{ClusterKind, "spec.infrastructureRef", object.GroupKind{}, false},
		{ClusterKind, "spec.controlPlaneRef", object.GroupKind{}, false},
		{ClusterKind, "spec.topology.controlPlane.healthCheck.remediation.templateRef", object.GroupKind{},
			false},
		{ClusterKind, "spec.topology.workers.machineDeployments.#.healthCheck.remediation.templateRef",
			object.GroupKind{}, false},
		{core("MachineHealthCheck"), "spec.remediation.templateRef", object.GroupKind{}, false},
		{core("MachineHealthCheck"), "spec.remediationTemplate", object.GroupKind{}, false},
		{KubeadmControlPlane, "spec.machineTemplate.spec.infrastructureRef", object.GroupKind{}, false},
		{KubeadmControlPlane, "spec.machineTemplate.infrastructureRef", object.GroupKind{}, false},
		{ResourceSetKind, "spec.resources", object.GroupKind{}, false},
		{ResourceSetBindingKind, "spec.bindings.#.clusterResourceSetName", ResourceSetKind, false},
		{ResourceSetBindingKind, "spec.clusterName", ClusterKind, true},
		{ipClaimKind, "spec.poolRef", object.GroupKind{}, false},
		{object.GroupKind{Group: ipamGroup, Kind: "IPAddress"}, "spec.poolRef", object.GroupKind{}, false},
		{object.GroupKind{Group: ipamGroup, Kind: "IPAddress"}, "spec.claimRef", ipClaimKind, true},
	},
	machineRules(MachineKind, "spec."),
	machineRules(core("MachineSet"), "spec.template.spec."),
	machineRules(core("MachineDeployment"), "spec.template.spec."),
	machineRules(core("MachinePool"), "spec.template.spec."),
	kubeadmRules(object.GroupKind{Group: bootstrapGroup, Kind: "KubeadmConfig"}, "spec."),
	kubeadmRules(object.GroupKind{Group: bootstrapGroup, Kind: "KubeadmConfigTemplate"},
		"spec.template.spec."),
	kubeadmRules(KubeadmControlPlane, "spec.kubeadmConfigSpec."),
	kubeadmRules(object.GroupKind{Group: controlPlaneGroup, Kind: "KubeadmControlPlaneTemplate"},
		"spec.template.spec.kubeadmConfigSpec."),
	classRules(),
)

func core(kind string) object.GroupKind { return object.GroupKind{Group: coreGroup, Kind: kind} }

func machineRules(from object.GroupKind, spec string) []Rule {
	return []Rule{
		{from, spec + "infrastructureRef", object.GroupKind{}, false},
		{from, spec + "bootstrap.configRef", object.GroupKind{}, false},
		{from, spec + "bootstrap.dataSecretName", secretKind, false},
	}
}

func kubeadmRules(from object.GroupKind, spec string) []Rule {
	return []Rule{
		{from, spec + "files.#.contentFrom.secret.name", secretKind, false},
		{from, spec + "users.#.passwdFrom.secret.name", secretKind, false},
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
		rules = append(rules, Rule{ClusterClassKind, p + "templateRef", object.GroupKind{}, false},
			Rule{ClusterClassKind, p + "ref", object.GroupKind{}, false})
	}
	for _, p := range []string{
		"spec.controlPlane.healthCheck.remediation.templateRef",
		"spec.controlPlane.machineHealthCheck.remediationTemplate",
		"spec.workers.machineDeployments.#.healthCheck.remediation.templateRef",
		"spec.workers.machineDeployments.#.machineHealthCheck.remediationTemplate",
	} {
		rules = append(rules, Rule{ClusterClassKind, p, object.GroupKind{}, false})
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

// certificatePurposes are the Secrets of a workload cluster that are found by name, "<workload
// cluster>-<purpose>", also when nothing owns them (Cluster API: util/secret; clusterctl's own
// list).
var certificatePurposes = []string{"kubeconfig", "ca", "etcd", "sa", "proxy",
	"apiserver-etcd-client"}

// refsAt returns the objects that a spec names in the field of a rule. scoped tells whether a kind
// has a namespace.
func refsAt(spec gjson.Result, rule Rule, namespace string,
	scoped func(object.GroupKind) bool) []object.Ref {
	var refs []object.Ref
	var add func(v gjson.Result)
	add = func(v gjson.Result) {
		switch {
		case v.IsArray():
			v.ForEach(func(_, e gjson.Result) bool { add(e); return true })
		case v.IsObject():
			if r := refOf(v, rule.To, namespace, scoped); r.Name != "" && r.Kind != "" {
				refs = append(refs, r)
			}
		case v.Type == gjson.String && v.Str != "":
			refs = append(refs, inScope(object.Ref{Group: rule.To.Group, Kind: rule.To.Kind,
				Namespace: namespace, Name: own(v.Str)}, scoped))
		}
	}
	add(spec.Get(strings.TrimPrefix(rule.Path, "spec.")))
	return refs
}

func refOf(v gjson.Result, to object.GroupKind, namespace string,
	scoped func(object.GroupKind) bool) object.Ref {
	r := object.Ref{Group: to.Group, Kind: to.Kind, Namespace: namespace, Name: own(text(v.Get("name")))}
	if k := v.Get("kind"); k.Exists() {
		r.Kind, r.Group = shared(k.String()), ""
	}
	if g := v.Get("apiGroup"); g.Exists() {
		r.Group = shared(g.String())
	} else if a := v.Get("apiVersion"); a.Exists() {
		r.Group = shared(groupOf(a.String()))
	}
	if ns := v.Get("namespace"); ns.String() != "" {
		r.Namespace = shared(ns.String())
	}
	return inScope(r, scoped)
}

func inScope(r object.Ref, scoped func(object.GroupKind) bool) object.Ref {
	if !scoped(r.GroupKind()) {
		r.Namespace = ""
	}
	return r
}

func groupOf(apiVersion string) string {
	for i := range apiVersion {
		if apiVersion[i] == '/' {
			return apiVersion[:i]
		}
	}
	return ""
}

// KnownKind reports whether the edge table knows a kind.
func KnownKind(gk object.GroupKind) bool {
	return slices.ContainsFunc(Rules, func(r Rule) bool { return r.From == gk || r.To == gk })
}
