package fleet

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// sizes is how many Machines a bare workload cluster has, and their names.
type sizes struct {
	controlPlanes []string
	pools         [][]string // the Machines of each MachineDeployment
}

func (s sizes) workers() (names []string) {
	for _, pool := range s.pools {
		names = append(names, pool...)
	}
	return names
}

// resize changes a recorded object of the given sizes from what was recorded.
// pool is the index of its MachineDeployment, -1 when it belongs to none.
func (s sizes) resize(o *unstructured.Unstructured, pool int) {
	spec, status := asFields(o.Object["spec"]), asFields(o.Object["status"])
	switch o.GetKind() {
	case "Cluster":
		if v1beta2 := asFields(status["v1beta2"]); v1beta2 != nil {
			status = v1beta2 // Cluster API 1.10
		}
		setReplicas(status["controlPlane"], recordedControlPlanes, len(s.controlPlanes))
		setReplicas(status["workers"], recordedWorkers, len(s.workers()))
		if topology := asFields(spec["topology"]); topology != nil {
			setReplicas(topology["controlPlane"], recordedControlPlanes, len(s.controlPlanes))
			s.resizeTopology(o, asFields(topology["workers"]))
		}
	case "KubeadmControlPlane":
		setReplicas(spec, recordedControlPlanes, len(s.controlPlanes))
		setReplicas(status, recordedControlPlanes, len(s.controlPlanes))
	case "MachineDeployment", "MachineSet":
		n := len(s.pools[pool])
		setReplicas(spec, recordedWorkers, n)
		setReplicas(status, recordedWorkers, n)
		annotations := o.GetAnnotations()
		for key, value := range map[string]int{"desired-replicas": n, "max-replicas": n + 1} {
			if key = "machinedeployment.clusters.x-k8s.io/" + key; annotations[key] != "" {
				annotations[key] = fmt.Sprint(value)
				o.SetAnnotations(annotations)
			}
		}
	case "MachineHealthCheck":
		s.resizeHealthCheck(status, pool)
	}
}

// resizeTopology names every pool in the Cluster, and gives the author of the
// recorded one the others too.
func (s sizes) resizeTopology(o *unstructured.Unstructured, workers fields) {
	recorded, _ := workers["machineDeployments"].([]any)
	var pools []any
	for i, machines := range s.pools {
		pool := asFields(runtime.DeepCopyJSONValue(recorded[0]))
		pool["name"] = poolName(i)
		pool["replicas"] = int64(len(machines))
		pools = append(pools, pool)
	}
	workers["machineDeployments"] = pools
	managers, _, _ := unstructured.NestedSlice(o.Object, "metadata", "managedFields")
	for _, manager := range managers {
		owned, _, _ := unstructured.NestedMap(asFields(manager), "fieldsV1", "f:spec", "f:topology",
			"f:workers", "f:machineDeployments")
		if set := owned[listKey(recordedPool)]; set != nil {
			for i := range s.pools {
				owned[listKey(poolName(i))] = runtime.DeepCopyJSONValue(set)
			}
			_ = unstructured.SetNestedMap(asFields(manager), owned, "fieldsV1", "f:spec", "f:topology",
				"f:workers", "f:machineDeployments")
		}
	}
	if managers != nil {
		_ = unstructured.SetNestedSlice(o.Object, managers, "metadata", "managedFields")
	}
}

func listKey(name string) string {
	text, _ := json.Marshal(map[string]string{"name": name})
	return "k:" + string(text)
}

func poolName(i int) string { return fmt.Sprintf("md-%d", i) }

// resizeHealthCheck gives a health check its Machines: those of its pool, or
// the control planes or all workers as its recorded targets were.
func (s sizes) resizeHealthCheck(status fields, pool int) {
	targets, _ := status["targets"].([]any)
	machines := s.workers()
	switch {
	case pool >= 0:
		machines = s.pools[pool]
	case len(targets) == recordedControlPlanes:
		machines = s.controlPlanes
	}
	names := make([]any, len(machines))
	for i, name := range machines {
		names[i] = name
	}
	status["targets"] = names
	for _, key := range []string{"expectedMachines", "currentHealthy", "remediationsAllowed"} {
		if status[key] == int64(len(targets)) {
			status[key] = int64(len(machines))
		}
	}
}

// setReplicas changes every count of replicas that has the recorded value.
func setReplicas(value any, from, to int) {
	switch value := value.(type) {
	case fields:
		for key, child := range value {
			if strings.HasSuffix(strings.ToLower(key), "replicas") && child == int64(from) {
				value[key] = int64(to)
			} else {
				setReplicas(child, from, to)
			}
		}
	case []any:
		for _, item := range value {
			setReplicas(item, from, to)
		}
	}
}
