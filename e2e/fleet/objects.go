package fleet

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// fields is an object's content. Numbers are int64, lists are []any: what
// decoding JSON would give, and DeepCopy demands.
type fields = map[string]any

const (
	coreAPI         = "cluster.x-k8s.io/v1beta2"
	bootstrapAPI    = "bootstrap.cluster.x-k8s.io/v1beta2"
	controlPlaneAPI = "controlplane.cluster.x-k8s.io/v1beta2"
	infraAPI        = "infrastructure.cluster.x-k8s.io/v1beta2"
	addonsAPI       = "addons.cluster.x-k8s.io/v1beta2"

	// workloadVersion is the Kubernetes version the workload clusters claim to run.
	workloadVersion = "v1.35.0"
	className       = "in-memory"
	addonsLabel     = "addons"
)

func object(apiVersion, kind, namespace, name string, content fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: content}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func ref(kind, name string) fields {
	groups := map[string]string{
		"DevCluster":            "infrastructure.cluster.x-k8s.io",
		"DevMachineTemplate":    "infrastructure.cluster.x-k8s.io",
		"KubeadmControlPlane":   "controlplane.cluster.x-k8s.io",
		"KubeadmConfigTemplate": "bootstrap.cluster.x-k8s.io",
	}
	return fields{"apiGroup": groups[kind], "kind": kind, "name": name}
}

func templateRef(apiVersion, kind, name string) fields {
	return fields{"templateRef": fields{"apiVersion": apiVersion, "kind": kind, "name": name}}
}

// template wraps a spec as the *Template kinds do.
func template(spec fields) fields {
	return fields{
		"spec": fields{"template": fields{"spec": spec}}}
}

// shared are the objects that the workload clusters of a namespace share.
func shared(namespace string) []*unstructured.Unstructured {
	ns := object("v1", "Namespace", "", namespace, fields{})
	// Access rules hang on such labels: a restore that loses them opens or closes doors.
	ns.SetLabels(map[string]string{"team": namespace,
		"pod-security.kubernetes.io/enforce": "baseline"})
	return []*unstructured.Unstructured{
		ns,
		// Named by bootstrap configurations alone: nothing owns it, nothing labels it.
		object("v1", "Secret", namespace, "registry-credentials", fields{
			"type": "Opaque",
			"data": fields{"config.json": base64.StdEncoding.EncodeToString(
				[]byte(credentialsOf(namespace)))},
		}),
		object("v1", "ConfigMap", namespace, "cni", fields{"data": fields{"cni.yaml": addonConfigMap}}),
		// Applied with stringData, as people do: its managedFields name a field that it has not.
		object("v1", "Secret", namespace, "addon-token", fields{
			"type":       "addons.cluster.x-k8s.io/resource-set",
			"stringData": fields{"token.yaml": addonSecret},
		}),
		object(addonsAPI, "ClusterResourceSet", namespace, "addons", fields{"spec": fields{
			"strategy":        "ApplyOnce",
			"clusterSelector": fields{"matchLabels": fields{addonsLabel: "standard"}},
			"resources": []any{
				fields{"kind": "ConfigMap", "name": "cni"},
				fields{"kind": "Secret", "name": "addon-token"},
			},
		}}),
		object(coreAPI, "MachineDrainRule", namespace, "skip-batch", fields{"spec": fields{
			"drain":    fields{"behavior": "Skip"},
			"machines": []any{fields{"selector": fields{"matchLabels": fields{"tier": "workers"}}}},
			"pods":     []any{fields{"selector": fields{"matchLabels": fields{"batch": "true"}}}},
		}}),
	}
}

func credentialsOf(namespace string) string {
	return fmt.Sprintf(
		`{"auths":{"registry.example.com":{"username":%q,"password":"not-a-real-one"}}}`, namespace)
}

const addonConfigMap = `apiVersion: v1
kind: ConfigMap
metadata:
  name: cni
  namespace: kube-system
data:
  mtu: "1450"
`

const addonSecret = `apiVersion: v1
kind: Secret
metadata:
  name: addon-token
  namespace: kube-system
stringData:
  token: not-a-real-one
`

// class is a ClusterClass with its templates; the templates come first. patchedBy is the handler of
// a runtime extension that generates further patches; empty for none.
func class(namespace, patchedBy string) []*unstructured.Unstructured {
	patches := []any{imagePullPolicyPatch()}
	if patchedBy != "" {
		patches = append(patches, fields{"name": "extension", "external": fields{
			"generatePatchesExtension": patchedBy}})
	}
	health := fields{"checks": unhealthyNodes()}
	return []*unstructured.Unstructured{
		object(infraAPI, "DevClusterTemplate", namespace, className, template(inMemory(fields{}))),
		object(controlPlaneAPI, "KubeadmControlPlaneTemplate", namespace, className,
			template(fields{"kubeadmConfigSpec": controlPlaneConfig()})),
		machineTemplate(namespace, className+"-control-plane"),
		machineTemplate(namespace, className+"-worker"),
		object(bootstrapAPI, "KubeadmConfigTemplate", namespace, className+"-worker",
			template(workerConfig())),
		object(coreAPI, "ClusterClass", namespace, className, fields{"spec": fields{
			"infrastructure": templateRef(infraAPI, "DevClusterTemplate", className),
			"controlPlane": fields{
				"templateRef": templateRef(controlPlaneAPI, "KubeadmControlPlaneTemplate",
					className)["templateRef"],
				"machineInfrastructure": templateRef(infraAPI, "DevMachineTemplate", className+
					"-control-plane"),
				"healthCheck": health,
			},
			"workers": fields{"machineDeployments": []any{fields{
				"class":          "default-worker",
				"bootstrap":      templateRef(bootstrapAPI, "KubeadmConfigTemplate", className+"-worker"),
				"infrastructure": templateRef(infraAPI, "DevMachineTemplate", className+"-worker"),
				"healthCheck":    health,
			}}},
			"variables": []any{fields{
				"name": "imagePullPolicy", "required": false,
				"schema": fields{"openAPIV3Schema": fields{"type": "string", "enum": []any{"IfNotPresent",
					"Always"}, "default": "IfNotPresent"}},
			}},
			"patches": patches,
		}}),
	}
}

// imagePullPolicyPatch is the inline patch of the ClusterClass.
func imagePullPolicyPatch() fields {
	return fields{"name": "imagePullPolicy", "definitions": []any{fields{
		"selector": fields{
			"apiVersion": controlPlaneAPI, "kind": "KubeadmControlPlaneTemplate",
			"matchResources": fields{"controlPlane": true},
		},
		"jsonPatches": []any{fields{
			"op": "add",
			"path": "/spec/template/spec/kubeadmConfigSpec/joinConfiguration/nodeRegistration/" +
				"imagePullPolicy",
			"valueFrom": fields{"variable": "imagePullPolicy"},
		}},
	}}}
}

// workload are the objects of one workload cluster, the Cluster first: it is
// the owner of the others.
func workload(s Shape, prefix string) []*unstructured.Unstructured {
	key := s.Key(prefix)
	spec := fields{"clusterNetwork": fields{
		"services":      fields{"cidrBlocks": []any{"10.128.0.0/12"}},
		"pods":          fields{"cidrBlocks": []any{"192.168.0.0/16"}},
		"serviceDomain": "cluster.local",
	}}
	cluster := object(coreAPI, "Cluster", key.Namespace, key.Name, fields{"spec": spec})
	if s.Addons {
		cluster.SetLabels(map[string]string{addonsLabel: "standard"})
	}
	if s.ClassNamespace != "" {
		spec["topology"] = topology(s, prefix)
		return []*unstructured.Unstructured{cluster}
	}
	spec["infrastructureRef"] = ref("DevCluster", key.Name)
	spec["controlPlaneRef"] = ref("KubeadmControlPlane", key.Name)
	infra := object(infraAPI, "DevCluster", key.Namespace, key.Name,
		fields{"spec": inMemory(fields{})})
	// Its controller writes into the annotations, and panics when there are none.
	infra.SetAnnotations(map[string]string{"example.com/purpose": "test"})
	config := controlPlaneConfig()
	if s.ExternalEtcd {
		config["clusterConfiguration"] = fields{"etcd": externalEtcd()}
	}
	objects := []*unstructured.Unstructured{
		cluster,
		infra,
		machineTemplate(key.Namespace, key.Name+"-control-plane"),
		object(controlPlaneAPI, "KubeadmControlPlane", key.Namespace, key.Name, fields{"spec": fields{
			"replicas": int64(s.ControlPlanes),
			"version":  workloadVersion,
			"machineTemplate": fields{"spec": fields{"infrastructureRef": ref("DevMachineTemplate",
				key.Name+"-control-plane")}},
			"kubeadmConfigSpec": config,
		}}),
	}
	for i, replicas := range s.Pools {
		objects = append(objects, pool(key.Namespace, key.Name, fmt.Sprintf("%s-md-%d", key.Name, i),
			replicas)...)
	}
	if s.HealthChecks {
		objects = append(objects,
			healthCheck(key.Namespace, key.Name, key.Name+"-control-plane",
				fields{"cluster.x-k8s.io/control-plane": ""}),
			healthCheck(key.Namespace, key.Name, key.Name+"-workers", fields{"tier": "workers"}))
	}
	return objects
}

func topology(s Shape, prefix string) fields {
	pools := make([]any, 0, len(s.Pools))
	for i, replicas := range s.Pools {
		pools = append(pools, fields{"class": "default-worker", "name": fmt.Sprintf("md-%d", i),
			"replicas": int64(replicas)})
	}
	return fields{
		"classRef":     fields{"name": className, "namespace": prefix + s.ClassNamespace},
		"version":      workloadVersion,
		"controlPlane": fields{"replicas": int64(s.ControlPlanes)},
		"workers":      fields{"machineDeployments": pools},
		"variables":    []any{fields{"name": "imagePullPolicy", "value": "Always"}},
	}
}

// pool is a MachineDeployment with its templates.
func pool(namespace, cluster, name string, replicas int) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		machineTemplate(namespace, name),
		object(bootstrapAPI, "KubeadmConfigTemplate", namespace, name, template(workerConfig())),
		object(coreAPI, "MachineDeployment", namespace, name, fields{"spec": fields{
			"clusterName": cluster,
			"replicas":    int64(replicas),
			"selector":    fields{"matchLabels": fields{}},
			"template": fields{
				"metadata": fields{"labels": fields{"tier": "workers"}},
				"spec": fields{
					"clusterName":       cluster,
					"version":           workloadVersion,
					"bootstrap":         fields{"configRef": ref("KubeadmConfigTemplate", name)},
					"infrastructureRef": ref("DevMachineTemplate", name),
				},
			},
		}}),
	}
}

func healthCheck(namespace, cluster, name string, labels fields) *unstructured.Unstructured {
	return object(coreAPI, "MachineHealthCheck", namespace, name, fields{"spec": fields{
		"clusterName": cluster,
		"selector":    fields{"matchLabels": labels},
		"checks":      unhealthyNodes(),
	}})
}

func unhealthyNodes() fields {
	return fields{"unhealthyNodeConditions": []any{
		fields{"type": "Ready", "status": "Unknown", "timeoutSeconds": int64(300)},
		fields{"type": "Ready", "status": "False", "timeoutSeconds": int64(300)},
	}}
}

func inMemory(content fields) fields { return fields{"backend": fields{"inMemory": content}} }

// machineTemplate starts each stage of a machine within about a second.
func machineTemplate(namespace, name string) *unstructured.Unstructured {
	soon := func() fields {
		return fields{"provisioning": fields{"startupDuration": "1s", "startupJitter": "0.2"}}
	}
	return object(infraAPI, "DevMachineTemplate", namespace, name,
		template(inMemory(fields{"vm": soon(), "node": soon(), "apiServer": soon(), "etcd": soon()})))
}

// credentials is a file of a machine that comes from a Secret which nothing but this names.
func credentials() []any {
	return []any{fields{
		"path": "/etc/registry/config.json", "owner": "root:root", "permissions": "0600",
		"contentFrom": fields{"secret": fields{"name": "registry-credentials", "key": "config.json"}},
	}}
}

func nodeRegistration() fields {
	return fields{"nodeRegistration": fields{
		"criSocket": "unix:///var/run/containerd/containerd.sock",
		"kubeletExtraArgs": []any{fields{"name": "eviction-hard",
			"value": "nodefs.available<0%,imagefs.available<0%"}},
	}}
}

func controlPlaneConfig() fields {
	return fields{
		"files":                credentials(),
		"clusterConfiguration": fields{"apiServer": fields{"certSANs": []any{"localhost", "127.0.0.1"}}},
		"initConfiguration":    nodeRegistration(),
		"joinConfiguration":    nodeRegistration(),
	}
}

func workerConfig() fields {
	return fields{"files": credentials(), "joinConfiguration": nodeRegistration()}
}
