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
