package capi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestPauseIsGivenBackExactly: the switch is what it was after a pause and its end: absent, false,
// true, or an annotation with a value.
func TestPauseIsGivenBackExactly(t *testing.T) {
	const head = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"name":"a","namespace":"n"`
	const set = `{"apiVersion":"addons.cluster.x-k8s.io/v1beta2","kind":"ClusterResourceSet","metadata":{"name":"a","namespace":"n"`
	for name, text := range map[string]string{
		"absent":           head + `},"spec":{}}`,
		"false":            head + `},"spec":{"paused":false}}`,
		"true":             head + `},"spec":{"paused":true}}`,
		"by annotation":    head + `,"annotations":{"cluster.x-k8s.io/paused":"why"}},"spec":{}}`,
		"set absent":       set + `},"spec":{}}`,
		"set by value":     set + `,"annotations":{"cluster.x-k8s.io/paused":"true","x":"y"}},"spec":{}}`,
		"others untouched": `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"n"},"data":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var rows *Table
			source, u := decoded(t, text), decoded(t, text)
			rows.Pause(u)
			_, annotated := annotations(u)[AnnotationPaused]
			spec, _ := u["spec"].(map[string]any)
			paused, _ := spec["paused"].(bool)
			if has := paused || annotated; has != (u["kind"] != "Secret") {
				t.Errorf("paused %v", has)
			}
			if changed := rows.Unpause(u); changed != (u["kind"] != "Secret") {
				t.Errorf("changed %v", changed)
			}
			if diff := cmp.Diff(source, u); diff != "" {
				t.Errorf("it is not what it was (-was +is):\n%s", diff)
			}
			if rows.Unpause(u) {
				t.Error("a second release changes something")
			}
		})
	}
}

func TestUnpauseLeavesTheSwitchOfOthers(t *testing.T) {
	live := decoded(t, `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"name":"a"},"spec":{"paused":true}}`)
	var rows *Table
	if rows.Unpause(live) {
		t.Error("a pause that an operator set was ended")
	}
}

// TestUnpauseOfAKindThatAnOlderVersionPaused: version 0.4 paused ExtensionConfigs.
func TestUnpauseOfAKindThatAnOlderVersionPaused(t *testing.T) {
	live := decoded(t, `{"apiVersion":"runtime.cluster.x-k8s.io/v1beta2","kind":"ExtensionConfig",
		"metadata":{"name":"a","annotations":{"cluster.x-k8s.io/paused":"","mgmtd.dev/was-paused":"absent"}}}`)
	var rows *Table
	if !rows.Unpause(live) || annotationSwitch.IsSet(annotationSwitch{}, live) || PausedByUs(live) {
		t.Errorf("it is still paused: %v", live)
	}
}

func TestPauseOfEachKind(t *testing.T) {
	var rows *Table
	for gk, want := range map[object.GroupKind]Pause{
		Cluster:                                     PauseBySpec,
		ClusterClass:                                PauseNever,
		ExtensionConfig:                             PauseNever,
		ClusterResourceSet:                          PauseByAnnotation,
		infra("OpenStackMachine"):                   PauseWithCluster,
		infra("OpenStackMachineTemplate"):           PauseNone,
		infra("AzureClusterIdentity"):               PauseNone,
		infra("OpenStackFloatingIPPool"):            PauseUnsupported,
		{Group: "metal3.io", Kind: "BareMetalHost"}: PauseUnsupported,
		{Group: "containerservice.azure.com", Kind: "ManagedCluster"}: PauseUnsupported,
		{Group: "addons.stackhpc.com", Kind: "Anything"}:              PauseUnsupported,
		{Group: "example.org", Kind: "Thing"}:                         PauseUnknown,
	} {
		if got := rows.Row(gk).Pause; got != want {
			t.Errorf("%s is paused by %s, want %s", gk, got, want)
		}
	}
}

func infra(kind string) object.GroupKind {
	return object.GroupKind{Group: GroupInfrastructure, Kind: kind}
}

// TestWhatAPauseMeans is the table of all mechanisms.
func TestWhatAPauseMeans(t *testing.T) {
	type meaning struct {
		Order                                   int
		Acknowledged, AtWork, AtWorkWithCluster bool
		Passive, Late, Supported                bool
	}
	want := map[string]meaning{
		"spec": {Order: 2, Acknowledged: true, AtWorkWithCluster: true, Supported: true},
		"annotation": {Order: 1, Acknowledged: true, AtWork: true, AtWorkWithCluster: true,
			Supported: true},
		"with-cluster": {Acknowledged: true, AtWorkWithCluster: true, Supported: true},
		"none":         {Passive: true, Supported: true},
		"never":        {AtWork: true, AtWorkWithCluster: true, Supported: true},
		"unsupported":  {Acknowledged: true},
		"unknown":      {AtWork: true, AtWorkWithCluster: true, Late: true, Supported: true},
	}
	got := map[string]meaning{}
	for _, p := range pauses {
		got[p.String()] = meaning{p.Order(), p.Acknowledged(), p.AtWork(false), p.AtWork(true),
			p.Passive(), p.Late(), p.Supported()}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnfinishedCopyHasOurMarkAndNoLock(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`:                                    false,
		`{"mgmtd.dev/was-paused":"absent"}`:     true,
		`{"mgmtd.dev/operation":"op/1"}`:        false,
		`{"cluster.x-k8s.io/paused":"","a":""}`: false,
		`{"mgmtd.dev/was-paused":"false","mgmtd.dev/operation":"op"}`:   true,
		`{"mgmtd.dev/was-paused":"false","mgmtd.dev/operation":"op/2"}`: false,
	} {
		if got := IsUnfinishedCopy(gjson.Parse(text).Map()); got != want {
			t.Errorf("%s: unfinished copy %t, want %t", text, got, want)
		}
	}
}
