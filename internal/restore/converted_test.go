package restore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// convertingProber is a target that answers every write with the same object.
type convertingProber struct {
	Prober
	answer *unstructured.Unstructured
}

func (p convertingProber) DryRunCreate(context.Context, kube.Kind, *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	answer := p.answer.DeepCopy()
	delete(answer.Object, "status")
	return answer, nil
}

func (p convertingProber) DryRunUpdate(context.Context, kube.Kind, *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return p.answer.DeepCopy(), nil
}

func (p convertingProber) DryRunUpdateStatus(context.Context, kube.Kind,
	*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return p.answer.DeepCopy(), nil
}

// TestWhatClusterAPIConvertsHoldsNothingBack: testdata/converted.jsonl has objects in the form in
// which Cluster API 1.10 stores them at v1beta1, written by hand, and what the conversion functions
// of cluster-api v1.14 make of them: to v1beta2 and back, with the defaults of a control plane in
// between. They rename the versions of references, drop fields that v1beta2 has not, and write the
// annotation conversion-data. None of that is lost, would roll out, or is a worse condition.
func TestWhatClusterAPIConvertsHoldsNothingBack(t *testing.T) {
	text, err := os.ReadFile("testdata/converted.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	converted := map[string][]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var recorded struct{ Source, Answer json.RawMessage }
		if err := json.Unmarshal(lines.Bytes(), &recorded); err != nil {
			t.Fatal(err)
		}
		source, answer := decoded(t, string(recorded.Source)), decoded(t, string(recorded.Answer))
		kind := source.GroupVersionKind()
		gk := object.GroupKind{Group: kind.Group, Kind: kind.Kind}
		name := gk.Kind + " " + source.GetName()
		stored := kube.Kind{GroupKind: gk, Version: "v1beta2", Status: true}
		read := stored
		read.Version = "v1beta1"
		s := standard{prober: convertingProber{answer: answer}, kinds: []kube.Kind{stored}}
		ref := object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: "team", Name: source.GetName()}

		d := s.judge(t.Context(), ref, source, answer, equality.Values)
		if len(d.lost) > 0 {
			t.Errorf("%s: lost %v", name, d.lost)
		}
		if len(d.converted) > 0 {
			converted[name] = d.converted
		}
		if i := slices.IndexFunc(slices.Concat(d.added, d.converted), func(path string) bool {
			return strings.Contains(path, "annotations")
		}); i >= 0 {
			t.Errorf("%s: conversion-data is among %v and %v", name, d.added, d.converted)
		}
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Kinds: s.kinds})
		if why := r.degradedCondition(Object{Ref: ref}, source, answer); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		var rows *capi.Table
		a, err := s.ask(t.Context(), rows, read, source.DeepCopy())
		if err != nil || a.refusal != "" || len(a.rollsOut) > 0 || len(a.deviation.lost) > 0 {
			t.Errorf("%s: a dry-run finds %+v, %v", name, a, err)
		}
	}
	if diff := cmp.Diff(map[string][]string{
		"Cluster plain": {"spec.controlPlaneRef.apiVersion", "spec.infrastructureRef.apiVersion"},
		"Cluster stock": {"spec.controlPlaneRef.apiVersion", "spec.infrastructureRef.apiVersion",
			"spec.topology.rolloutAfter", "spec.topology.variables[0].definitionFrom",
			"spec.topology.workers.machineDeployments[0].variables.overrides[0].definitionFrom"},
		"KubeadmConfig plain-md-0-x-y": {"spec.useExperimentalRetryJoin"},
		"KubeadmControlPlane plain": {
			"spec.kubeadmConfigSpec.clusterConfiguration.networking.dnsDomain",
			"spec.kubeadmConfigSpec.useExperimentalRetryJoin",
			"spec.machineTemplate.infrastructureRef.apiVersion"},
		"Machine plain-md-0-x-y": {
			"spec.bootstrap.configRef.apiVersion", "spec.bootstrap.configRef.uid",
			"spec.infrastructureRef.apiVersion", "spec.infrastructureRef.uid", "status.nodeRef.uid"},
		"MachineDeployment plain-md-0": {"spec.progressDeadlineSeconds", "spec.revisionHistoryLimit",
			"spec.template.spec.bootstrap.configRef.apiVersion",
			"spec.template.spec.infrastructureRef.apiVersion"},
		"MachineSet plain-md-0-x": {"spec.template.spec.bootstrap.configRef.apiVersion",
			"spec.template.spec.infrastructureRef.apiVersion"},
	}, converted); diff != "" {
		t.Errorf("dropped by the conversion (-want +got):\n%s", diff)
	}
}

// TestARestoreIntoANewerContractReleasesAndAdopts is a whole restore between contract versions: the
// source stores v1beta1 and has conditions of both contracts. The target stores v1beta2: it drops a
// value and a condition, shows conversion-data at v1beta1, and its controllers write the conditions
// of the old contract by other rules.
func TestARestoreIntoANewerContractReleasesAndAdopts(t *testing.T) {
	source, target := newMemory(t, "source"), newMemory(t, "target")
	source.kinds, target.kinds = slices.Clone(source.kinds), slices.Clone(target.kinds)
	for i, k := range source.kinds {
		if k.Version == "v1beta2" {
			source.kinds[i].Version, source.kinds[i].Served = "v1beta1", []string{"v1beta1"}
			target.kinds[i].Served = []string{"v1beta1", "v1beta2"}
		}
	}
	for _, text := range []string{`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"one"}}`,
		`{"apiVersion":"cluster.x-k8s.io/v1beta1","kind":"Cluster",
		"metadata":{"name":"w","namespace":"one","annotations":{"a":"b"}},"spec":{"old":"x"},
		"status":{"phase":"Provisioned","conditions":[{"type":"Ready","status":"True"}],
		"v1beta2":{"conditions":[{"type":"Available","status":"True"},
			{"type":"OldReady","status":"True"},{"type":"Paused","status":"False"}]}}}`} {
		u := decoded(t, text)
		source.put(refOf(u), u)
	}
	target.convertIn = func(u *unstructured.Unstructured) {
		unstructured.RemoveNestedField(u.Object, "spec", "old")
		capi.Unannotate(u.Object, capi.AnnotationConversionData)
	}
	target.convertOut = func(u *unstructured.Unstructured) {
		if u.GetKind() != "Cluster" {
			return
		}
		capi.Annotate(u.Object, capi.AnnotationConversionData, u.GetResourceVersion())
		if u.Object["status"] == nil {
			return
		}
		ready, paused := "True", "False"
		if at, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); at {
			paused = "True"
		} else {
			ready = "False" // by the rules of newer controllers
		}
		condition := func(name, status string) any {
			return map[string]any{"type": name, "status": status}
		}
		status := u.Object["status"].(map[string]any)
		status["conditions"] = []any{condition("Ready", ready)}
		status["v1beta2"] = map[string]any{"conditions": []any{condition("Available", "True"),
			condition("Paused", paused)}}
	}
	x := newTrial(t, source, target)
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	cluster := target.get(t, "Cluster.cluster.x-k8s.io/one/w")
	if paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused"); paused {
		t.Error("it is not released")
	}
	var dropped []string
	for e, err := range x.catalog.Events(t.Context(), x.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == catalog.EventFinding && e.Finding.Code == object.CodeLostInConversion {
			dropped = append(dropped, e.Finding.Message)
		}
	}
	if text := strings.Join(dropped, "; "); !strings.Contains(text, "spec.old") ||
		!strings.Contains(text, "OldReady") || strings.Contains(text, "conversion-data") {
		t.Errorf("lost in conversion: %s", text)
	}
	x.load(t)
	if create, adopt, _, blocked := x.makePlan(t).Counts(); create+blocked > 0 || adopt == 0 {
		t.Errorf("planned again: %d to create, %d to adopt, %d units blocked", create, adopt, blocked)
	}
}
