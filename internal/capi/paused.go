package capi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Types of conditions. Source: cluster-api v1.14, api/core/v1beta2/condition_consts.go.
const (
	// conditionPaused is the condition with which controllers acknowledge a pause, and the reason
	// of conditionTopologyReconciled then.
	conditionPaused = "Paused"
	// conditionTopologyReconciled is a condition of Clusters with a class.
	conditionTopologyReconciled = "TopologyReconciled"
)

// PublishesPause reports whether an object has the condition Paused.
func PublishesPause(obj map[string]any) bool { return newestCondition(obj, conditionPaused) != nil }

// pauseOwners are the kinds of the owner that an object of a provider must have before its
// controller reads its pause.
var pauseOwners = []object.GroupKind{Cluster, Machine, MachinePool}

// ReadsPause reports whether the controller of an object gets as far as its pause. Controllers of
// infrastructure, bootstrap and control planes return before it when the object has no owner of
// Cluster API's core or is externally managed (cluster-api v1.14,
// docs/book/src/developer/providers/contracts: infra-cluster.md, infra-machine.md,
// bootstrap-config.md). A Cluster that was paused right after a control plane or a MachineSet had
// created a Machine has such objects: only the controller of that Machine, which is paused, makes
// it their owner (core/reconcilers/machine/machine_controller_phases.go). Those of Cluster API's
// core find the Cluster by its name, so they read the pause of every object.
func ReadsPause(obj map[string]any) bool {
	if kindOf(obj).Group == GroupCore {
		return true
	}
	if _, managed := annotations(obj)[AnnotationManagedBy]; managed {
		return false
	}
	meta, _ := obj["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	return slices.ContainsFunc(owners, func(owner any) bool {
		o, _ := owner.(map[string]any)
		return slices.Contains(pauseOwners, kindOf(o))
	})
}

// TopologyNotPaused says why the topology controller, which honours the pause of a Cluster with a
// class by itself, has not acknowledged it; "" when it has, or when there is no class.
func TopologyNotPaused(cluster map[string]any) string {
	spec, _ := cluster["spec"].(map[string]any)
	if _, classy := spec["topology"].(map[string]any); !classy {
		return ""
	}
	c := newestCondition(cluster, conditionTopologyReconciled)
	if c == nil || c["reason"] == conditionPaused {
		return ""
	}
	return fmt.Sprintf("TopologyReconciled has reason %v", c["reason"])
}

// NotAcknowledged says why the Paused condition of an object does not show status at its current
// generation; "" when it does.
func NotAcknowledged(obj map[string]any, status string) string {
	c := newestCondition(obj, conditionPaused)
	if c == nil {
		return "it has no Paused condition yet"
	}
	if c["status"] != status {
		return fmt.Sprintf("Paused is %v", c["status"])
	}
	meta, _ := obj["metadata"].(map[string]any)
	generation, _ := meta["generation"].(int64)
	if observed, ok := c["observedGeneration"].(int64); ok && observed < generation {
		return fmt.Sprintf("Paused was observed at generation %d of %d", observed, generation)
	}
	return ""
}

// newestCondition returns the condition of a type of the newest contract that an object has, or
// nil. Objects of version v1beta1 have the conditions of contract v1beta2 in
// status.v1beta2.conditions, since Cluster API 1.9; their status.conditions are those of contract
// v1beta1, which have no Paused and no reason while they are True (cluster-api v1.10.7,
// api/v1beta1/machine_types.go).
func newestCondition(obj map[string]any, name string) map[string]any {
	status, _ := obj["status"].(map[string]any)
	v1beta2, _ := status["v1beta2"].(map[string]any)
	if c := condition(v1beta2, name); c != nil {
		return c
	}
	return condition(status, name)
}

// RemovePaused removes the condition Paused. Its message names each thing that pauses the object
// (cluster-api v1.14, util/paused/paused.go, pausedCondition).
func RemovePaused(obj map[string]any) {
	status, _ := obj["status"].(map[string]any)
	v1beta2, _ := status["v1beta2"].(map[string]any)
	for _, m := range []map[string]any{status, v1beta2} {
		list, ok := m["conditions"].([]any)
		if !ok {
			continue
		}
		m["conditions"] = slices.DeleteFunc(list, func(c any) bool {
			is, _ := c.(map[string]any)
			return is["type"] == conditionPaused
		})
	}
}

// condition returns the condition of a type in the list that m holds, or nil.
func condition(m map[string]any, name string) map[string]any {
	list, _ := m["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == name {
			return c
		}
	}
	return nil
}

// IsUnfinishedCopy reports whether a Cluster with these annotations is the paused copy of a
// restore or a move that has not ended: it has our mark, and no lock. The source of a move has
// both, and the lock of a source has a slash: <operation>/<run>.
func IsUnfinishedCopy(annotations map[string]gjson.Result) bool {
	locked := strings.Contains(annotations[AnnotationOperation].String(), "/")
	return annotations[AnnotationWasPaused].Exists() && !locked
}
