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
	const aso = `{"apiVersion":"network.azure.com/v1","kind":"VirtualNetwork","metadata":{"name":"a"`
	const addon = `{"apiVersion":"addons.stackhpc.com/v1alpha1","kind":"Manifests","metadata":{"name":"a"`
	const azimuth = `{"apiVersion":"azimuth.stackhpc.com/v1alpha1","kind":"Cluster","metadata":{"name":"a"`
	for name, text := range map[string]string{
		"absent":                       head + `},"spec":{}}`,
		"false":                        head + `},"spec":{"paused":false}}`,
		"true":                         head + `},"spec":{"paused":true}}`,
		"by annotation":                head + `,"annotations":{"cluster.x-k8s.io/paused":"why"}},"spec":{}}`,
		"set absent":                   set + `},"spec":{}}`,
		"set by value":                 set + `,"annotations":{"cluster.x-k8s.io/paused":"true","x":"y"}},"spec":{}}`,
		"resource of Azure":            aso + `},"spec":{}}`,
		"resource of Azure, managed":   aso + `,"annotations":{"serviceoperator.azure.com/reconcile-policy":"manage"}}}`,
		"resource of Azure, no value":  aso + `,"annotations":{"serviceoperator.azure.com/reconcile-policy":"","x":"y"}}}`,
		"resource of Azure, by a user": aso + `,"annotations":{"serviceoperator.azure.com/reconcile-policy":"skip"}}}`,
		"resource of Azure, by its provider": aso + `,"annotations":{"serviceoperator.azure.com/reconcile-policy":"skip",
			"sigs.k8s.io/cluster-api-provider-azure-pre-pause-reconcile-policy":"manage"}}}`,
		"add-on absent":  addon + `},"spec":{"clusterName":"a"}}`,
		"add-on false":   addon + `},"spec":{"clusterName":"a","paused":false}}`,
		"add-on true":    addon + `},"spec":{"clusterName":"a","paused":true}}`,
		"Azimuth":        azimuth + `},"spec":{"paused":false}}`,
		"pool of Metal3": `{"apiVersion":"ipam.metal3.io/v1alpha1","kind":"IPPool","metadata":{"name":"a"},"spec":{}}`,
		"zone of vSphere": `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2",
			"kind":"VSphereDeploymentZone","metadata":{"name":"a"},"spec":{}}`,
		"host": `{"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost","metadata":{"name":"a"}}`,
		"host, by a user": `{"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost","metadata":{"name":"a",
			"annotations":{"baremetalhost.metal3.io/paused":"","x":"y"}}}`,
		"host, by its provider": `{"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost",
			"metadata":{"name":"a","annotations":{"baremetalhost.metal3.io/paused":"metal3.io/capm3"}}}`,
		"others untouched": `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"n"},"data":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var rows *Table
			source, u := decoded(t, text), decoded(t, text)
			rows.Pause(u)
			if is := rows.RowOf(u).Pause.IsSet(u); is != (u["kind"] != "Secret") {
				t.Errorf("paused %v", is)
			}
			rows.Pause(u) // again
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

// TestAPauseThatSomebodyEndsByHandIsNoPause: it leaves the mark. Another pause sets the switch
// again, and what it gives back is what it has found.
func TestAPauseThatSomebodyEndsByHandIsNoPause(t *testing.T) {
	const host = `{"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost","metadata":{"name":"a",
		"annotations":{"x":"y"`
	var rows *Table
	for _, was := range []string{"", `,"baremetalhost.metal3.io/paused":"by a user"`} {
		u := decoded(t, host+was+"}}}")
		rows.Pause(u)
		if !rows.StillPaused(u) {
			t.Fatal("it is not paused")
		}
		Unannotate(u, annotationHostPaused)
		if rows.StillPaused(u) || !PausedByUs(u) {
			t.Error("without its annotation it counts as paused, or as unmarked")
		}
		if !rows.Pause(u) || !rows.StillPaused(u) || rows.Pause(u) {
			t.Error("it is not paused again, or each time")
		}
		rows.Unpause(u)
		if diff := cmp.Diff(decoded(t, host+"}}}"), u); diff != "" {
			t.Errorf("it is given back as (-want +got):\n%s", diff)
		}
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
		infraKind("OpenStackMachine"):               PauseWithCluster,
		infraKind("OpenStackMachineTemplate"):       PauseNone,
		infraKind("AzureClusterIdentity"):           PauseNone,
		infraKind("OpenStackFloatingIPPool"):        PauseUnknown,
		{Group: "metal3.io", Kind: "BareMetalHost"}: PauseByHostAnnotation,
		{Group: "containerservice.azure.com", Kind: "ManagedCluster"}: PauseByReconcilePolicy,
		{Group: "storage.azure.com", Kind: "StorageAccount"}:          PauseByReconcilePolicy,
		{Group: "karpenter.azure.com", Kind: "AKSNodeClass"}:          PauseUnknown,
		{Group: "addons.stackhpc.com", Kind: "Anything"}:              PauseUnsupported,
		{Group: "example.org", Kind: "Thing"}:                         PauseUnknown,
	} {
		if got := rows.Row(gk).Pause; got != want {
			t.Errorf("%s is paused by %s, want %s", gk, got, want)
		}
	}
}

// TestWhatAPauseMeans is the table of all mechanisms.
func TestWhatAPauseMeans(t *testing.T) {
	type meaning struct {
		Order                                   int
		Acknowledged, AtWork, AtWorkWithCluster bool
		Passive, Late, Supported, Gate          bool
	}
	want := map[string]meaning{
		"spec": {Order: 2, Acknowledged: true, AtWorkWithCluster: true, Supported: true},
		"annotation": {Order: 1, Acknowledged: true, AtWork: true, AtWorkWithCluster: true,
			Supported: true},
		"own-spec": {Order: 3, Acknowledged: true, AtWork: true, AtWorkWithCluster: true,
			Supported: true},
		"own-spec-last": {Order: 4, Acknowledged: true, AtWork: true, AtWorkWithCluster: true,
			Supported: true},
		"reconcile-policy": {Order: 1, Acknowledged: true, AtWork: true, AtWorkWithCluster: true,
			Supported: true},
		"host-annotation": {Order: 1, Acknowledged: true, AtWork: true, AtWorkWithCluster: true,
			Supported: true, Gate: true},
		"with-cluster": {Acknowledged: true, AtWorkWithCluster: true, Supported: true},
		"none":         {Passive: true, Supported: true},
		"never":        {AtWork: true, AtWorkWithCluster: true, Supported: true},
		"unsupported":  {Acknowledged: true},
		"unknown":      {AtWork: true, AtWorkWithCluster: true, Late: true, Supported: true},
	}
	got := map[string]meaning{}
	for _, p := range pauses {
		got[p.String()] = meaning{p.Order(), p.Acknowledged(), p.AtWork(false), p.AtWork(true),
			p.Passive(), p.Late(), p.Supported(), p.Gate() != nil}
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

// TestPauseOfAzureIsOneThatItsProviderKnows: cluster-api-provider-azure gives back what it finds in
// the second annotation, and that is not undone afterwards.
func TestPauseOfAzureIsOneThatItsProviderKnows(t *testing.T) {
	const head = `{"apiVersion":"network.azure.com/v1","kind":"VirtualNetwork","metadata":{"name":"a"`
	var rows *Table
	u := decoded(t, head+`,"annotations":{"serviceoperator.azure.com/reconcile-policy":"manage"}}}`)
	rows.Pause(u)
	want := map[string]any{annotationPolicy: "skip", annotationPrePolicy: "manage",
		AnnotationWasPaused: WasFalse}
	if diff := cmp.Diff(want, annotations(u)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	Unannotate(u, annotationPrePolicy) // the provider was faster
	Annotate(u, annotationPolicy, "manage")
	rows.Unpause(u)
	if diff := cmp.Diff(map[string]any{annotationPolicy: "manage"}, annotations(u)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAPoolWithoutAClusterCannotBePaused: its controller reads the annotation of a pool of a
// Cluster alone.
func TestAPoolWithoutAClusterCannotBePaused(t *testing.T) {
	var rows *Table
	row := rows.Row(metal3Pool)
	for text, want := range map[string]bool{`{"spec":{"clusterName":"a"}}`: true, `{"spec":{}}`: false,
		`{"spec":{"clusterName":""}}`: false} {
		if row.CanBePaused([]byte(text)) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
	unsupported := Row{Pause: PauseUnsupported}
	if unsupported.CanBePaused([]byte(`{}`)) || !rows.Row(Cluster).CanBePaused(nil) {
		t.Error("of a kind without such a field")
	}
}

func TestVolatileAnnotationsAreThoseOfTheirControllers(t *testing.T) {
	var rows *Table
	for _, tt := range []struct {
		kind object.GroupKind
		key  string
		want bool
	}{
		{infraKind("AzureMachine"), "clusterctl.cluster.x-k8s.io/block-move", true},
		{Secret, "cluster.x-k8s.io/conversion-data", true},
		{object.GroupKind{Group: "network.azure.com", Kind: "VirtualNetwork"}, annotationPolicy, true},
		{object.GroupKind{Group: "sql.azure.com", Kind: "Server"}, annotationPrePolicy, true},
		{Cluster, annotationPolicy, false},
		{bareMetalHost, "baremetalhost.metal3.io/paused", true},
		{bareMetalHost, "baremetalhost.metal3.io/status", true},
		{bareMetalHost, "baremetalhost.metal3.io/detached", false},
		{object.GroupKind{Group: "addons.stackhpc.com", Kind: "Manifests"},
			"addons.stackhpc.com/last-handled-configuration", true},
		{object.GroupKind{Group: "addons.stackhpc.com", Kind: "Manifests"},
			"secret.addons.stackhpc.com/values", false},
		{object.GroupKind{Group: "azimuth.stackhpc.com", Kind: "Cluster"},
			"azimuth.stackhpc.com/last-handled-configuration", true},
		{Cluster, "cluster.x-k8s.io/paused", false},
	} {
		if rows.Row(tt.kind).IsVolatileAnnotation(tt.key) != tt.want {
			t.Errorf("%s of %s: %t", tt.key, tt.kind, !tt.want)
		}
	}
}

// TestTheStatusOfSomePausedObjectsIsWritten: their controllers write it before they look whether
// the Cluster is paused, or know no pause.
func TestTheStatusOfSomePausedObjectsIsWritten(t *testing.T) {
	var rows *Table
	for gk, want := range map[object.GroupKind]bool{
		infraKind("AzureASOManagedCluster"):         true,
		infraKind("AzureASOManagedControlPlane"):    true,
		infraKind("AzureASOManagedMachinePool"):     true,
		infraKind("AzureASOManagedClusterTemplate"): false,
		infraKind("AzureManagedCluster"):            false,
		infraKind("OpenStackServer"):                true,
		infraKind("OpenStackMachine"):               false,
		infraKind("KubevirtMachine"):                true,
		bootstrapKind("GKEConfig"):                  true,
	} {
		if got := rows.Row(gk).StatusWhilePaused; got != want {
			t.Errorf("%s: %v, want %v", gk, got, want)
		}
	}
}
