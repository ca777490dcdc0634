package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// TestPostFlightAcceptsWhatControllersWriteAtWork: a bootstrap token that is renewed, a kubeconfig
// that is signed again and the replicas of an autoscaler are no failure; the same change of another
// object is one.
func TestPostFlightAcceptsWhatControllersWriteAtWork(t *testing.T) {
	const token = `"spec":{"joinConfiguration":{"discovery":{"bootstrapToken":{"token":"%s"}}}}`
	owned := func(kind string) string {
		group := "cluster.x-k8s.io"
		switch kind {
		case "KubeadmConfig":
			group = "bootstrap.cluster.x-k8s.io"
		case "KubeadmControlPlane":
			group = "controlplane.cluster.x-k8s.io"
		}
		return `,"ownerReferences":[{"apiVersion":"` + group + `/v1beta2","kind":"` + kind +
			`","name":"o","uid":"1"}]`
	}
	const min = `,"annotations":{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size":"1"}`
	for _, tt := range []struct {
		name, apiVersion, kind, object, meta, body string
		differs                                    bool
	}{
		{"the token of a MachinePool", "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig", "a",
			owned("MachinePool"), token, false},
		{"the token of a Machine", "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig", "a",
			owned("Machine"), token, true},
		{"bootstrap data", "v1", "Secret", "a", owned("KubeadmConfig"), `"data":{"value":"%s"}`, false},
		{"a kubeconfig", "v1", "Secret", "a-kubeconfig", "", `"data":{"value":"%s"}`, false},
		{"a certificate", "v1", "Secret", "a-ca", "", `"data":{"tls.key":"%s"}`, true},
		{"the replicas of an autoscaler", "cluster.x-k8s.io/v1beta2", "MachineDeployment", "a", min,
			`"spec":{"replicas":%s}`, false},
		{"the replicas of nobody", "cluster.x-k8s.io/v1beta2", "MachineDeployment", "a", "",
			`"spec":{"replicas":%s}`, true},
		{"the readiness gates of a control plane's Machine", "cluster.x-k8s.io/v1beta1", "Machine", "a",
			owned("KubeadmControlPlane"), `"spec":{"readinessGates":[{"conditionType":"%s"}]}`, false},
		{"the readiness gates of another Machine", "cluster.x-k8s.io/v1beta1", "Machine", "a",
			owned("MachineSet"), `"spec":{"readinessGates":[{"conditionType":"%s"}]}`, true},
		{"another field with an autoscaler", "cluster.x-k8s.io/v1beta2", "MachineDeployment", "a", min,
			`"spec":{"clusterName":"%s"}`, true},
	} {
		version := func(value string) *unstructured.Unstructured {
			return decoded(t, fmt.Sprintf(
				`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":"n"%s},%s}`,
				tt.apiVersion, tt.kind, tt.object, tt.meta, fmt.Sprintf(tt.body, value)))
		}
		source, live := version("1"), version("2")
		gk := source.GroupVersionKind().GroupKind()
		o := Object{Ref: object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: "n", Name: tt.object}}
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}})
		for _, owner := range source.GetOwnerReferences() {
			group, _ := schema.ParseGroupVersion(owner.APIVersion)
			ref := object.Ref{Group: group.Group, Kind: owner.Kind, Namespace: "n", Name: owner.Name}
			o.Owners = append(o.Owners, ref)
			r.setUID(ref, "1")
		}
		if why := r.changed(t.Context(), o, source, live); (why != "") != tt.differs {
			t.Errorf("%s: %q", tt.name, why)
		}
	}
}

// TestDegradedConditionsAreThoseOfOneContract: 1.10 writes the conditions of the old contract to
// status.conditions and those of the new one to status.v1beta2.conditions. A target that stores
// another version may not know a type of the source at all.
func TestDegradedConditionsAreThoseOfOneContract(t *testing.T) {
	version := func(old, v1beta2 string) *unstructured.Unstructured {
		text := `{"apiVersion":"cluster.x-k8s.io/v1beta1","kind":"Machine","metadata":{"name":"a","namespace":"n"},"status":{"conditions":[` + old + `]`
		if v1beta2 != "" {
			text += `,"v1beta2":{"conditions":[` + v1beta2 + `]}`
		}
		return decoded(t, text+`}}`)
	}
	const (
		ready     = `{"type":"Ready","status":"True"}`
		notReady  = `{"type":"Ready","status":"False","reason":"Why"}`
		available = `{"type":"Available","status":"True"}`
		wasReady  = "condition Ready was True and is False (Why)"
		gone      = "condition Available was True and is not there"
	)
	for _, tt := range []struct {
		name         string
		source, live *unstructured.Unstructured
		stored, want string
	}{
		{"both contracts", version(ready, available), version(ready, available), "v1beta2", ""},
		{"worse in the new contract", version("", ready), version("", notReady), "v1beta2", wasReady},
		{"worse in the new contract, same version", version(ready, ready), version(ready, notReady),
			"v1beta1", wasReady},
		{"worse in the old contract, which the new one replaces", version(ready, ready),
			version(notReady, ready), "v1beta2", ""},
		{"worse, and the source has the old contract alone", version(ready, ""), version(notReady, ready),
			"v1beta2", wasReady},
		{"a type that the target's contract lacks", version(ready, ready+","+available),
			version(ready, ready), "v1beta2", ""},
		{"a list that the target's contract lacks", version(ready, ""), version("", ready), "v1beta2", ""},
		{"a type that is gone at the same version", version(available, ""), version(ready, ""), "v1beta1",
			gone},
		{"a type of the new contract that is gone at the same version", version(ready, available),
			version(ready, ready), "v1beta1", gone},
	} {
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Kinds: []kube.Kind{{GroupKind: capi.Machine,
			Version: tt.stored}}})
		o := Object{Ref: object.Ref{Group: capi.Machine.Group, Kind: capi.Machine.Kind, Namespace: "n",
			Name: "a"}}
		if got := r.degradedCondition(o, tt.source, tt.live); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// machineReader is a target with Machines and nothing else.
type machineReader struct {
	Reader
	list []string // JSON
	got  []kube.ListOptions
}

func (m *machineReader) List(_ context.Context, _ kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	m.got = append(m.got, o)
	for _, raw := range m.list {
		if err := fn([]byte(raw)); err != nil {
			return kube.ListResult{}, err
		}
	}
	return kube.ListResult{}, nil
}

func (m *machineReader) Get(_ context.Context, k kube.Kind, _, name string) (
	*unstructured.Unstructured, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: k.Kind}, name)
}

func machine(name, uid string) string {
	return `{"metadata":{"name":"` + name + `","namespace":"n","uid":"` + uid +
		`","labels":{"cluster.x-k8s.io/cluster-name":"w"}}}`
}

func TestMachinesThatCameOrWentSinceTheReleaseAreFound(t *testing.T) {
	deleting := strings.Replace(machine("a", "u1"), `"uid"`, `"deletionTimestamp":"now","uid"`, 1)
	for _, tt := range []struct {
		name       string
		live       []string
		came, gone []string
	}{
		{"as planned", []string{machine("a", "u1"), machine("b", "u2")}, nil, nil},
		{"one more", []string{machine("a", "u1"), machine("b", "u2"), machine("c", "u3")},
			[]string{"c"}, nil},
		{"one that was there before", []string{machine("a", "u1"), machine("b", "u2"),
			machine("old", "u9")}, nil, nil},
		{"one of the name of one that was there before", []string{machine("a", "u1"),
			machine("b", "u2"), machine("old", "u3")}, []string{"old"}, nil},
		{"one less", []string{machine("b", "u2")}, nil, []string{"a"}},
		{"created again", []string{machine("a", "u3"), machine("b", "u2")}, nil, []string{"a"}},
		{"being deleted", []string{deleting, machine("b", "u2")}, nil, []string{"a"}},
		{"replaced", []string{machine("a", "u1"), machine("c", "u3")}, []string{"c"}, []string{"b"}},
	} {
		reader := &machineReader{list: tt.live}
		u := Unit{Name: "n/w", OtherMachines: map[string]string{"old": "u9"}}
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Reader: reader,
			Kinds: []kube.Kind{{GroupKind: capi.Machine, Version: "v1beta2"}}})
		for name, uid := range map[string]string{"a": "u1", "b": "u2"} {
			ref := object.Ref{Group: capi.GroupCore, Kind: "Machine", Namespace: "n", Name: name}
			u.Objects = append(u.Objects, Object{Ref: ref, Action: Create})
			r.setUID(ref, uid)
		}
		err := r.compareMachines(t.Context(), u)
		var came, gone []string
		if isMachines(err) {
			e, _ := errors.AsType[*machinesError](err)
			for _, ref := range e.Came {
				came = append(came, ref.Name)
			}
			for _, ref := range e.Gone {
				gone = append(gone, ref.Name)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(came, tt.came) || !slices.Equal(gone, tt.gone) {
			t.Errorf("%s: came %v, gone %v", tt.name, came, gone)
		}
		if len(reader.got) != 1 || !reader.got[0].Metadata || reader.got[0].Namespace != "n" ||
			reader.got[0].Labels != "cluster.x-k8s.io/cluster-name=w" {
			t.Errorf("%s: it lists %+v", tt.name, reader.got)
		}
		if isUnhealthy(err) != (len(came)+len(gone) > 0) {
			t.Errorf("%s: unhealthy is %v", tt.name, isUnhealthy(err))
		}
	}
}

// TestAcceptedUnitPassesPostFlight: a unit with a Machine too many fails until it is accepted; the
// journal then has its post-flight.
func TestAcceptedUnitPassesPostFlight(t *testing.T) {
	c, err := catalog.Open(t.Context(), t.TempDir()+"/c.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	u := Unit{Name: "n/w"}
	journal := c.Journal(op.ID, catalog.JournalOptions{})
	postFlight := func() error {
		r := newRun(t.Context(), RunOptions{Plan: &Plan{Units: []Unit{u}}, Journal: journal,
			Reader: &machineReader{list: []string{machine("new", "u1")}},
			Kinds:  []kube.Kind{{GroupKind: capi.Machine, Version: "v1beta2"}}})
		if err := r.prepareRun(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.postFlight(t.Context(), u, func() {})
	}
	if err := journal.Do(t.Context(), releaseStep(u.Name),
		func(context.Context, *catalog.StepHandle) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := postFlight(); !isMachines(err) {
		t.Errorf("before it is accepted: %v", err)
	}
	if err := c.AcceptUnit(t.Context(), op.ID, object.Finding{Unit: u.Name}); err != nil {
		t.Fatal(err)
	}
	if err := postFlight(); err != nil {
		t.Error(err)
	}
	if state, err := journal.State(t.Context(), postFlightStep(u.Name)); err != nil ||
		state != catalog.StepDone {
		t.Errorf("its post-flight is %s, %v", state, err)
	}
}

func TestPostFlightLimitGrowsWithTheUnitsReleased(t *testing.T) {
	for _, tt := range []struct {
		tuning   Tuning
		released int64
		want     time.Duration
	}{
		{Tuning{}, 0, 5 * time.Minute},
		{Tuning{}, 1000, 5*time.Minute + 1000*time.Second},
		{Tuning{PostFlight: time.Minute}, 1000, time.Minute},
	} {
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Tuning: tt.tuning})
		r.released.Store(tt.released)
		if got := r.postFlightLimit(); got != tt.want {
			t.Errorf("%+v after %d units: %s, want %s", tt.tuning, tt.released, got, tt.want)
		}
	}
}

// TestWaitsTakeNoSlotOfCreates: while creates hold all of theirs, a wait reads nevertheless.
func TestWaitsTakeNoSlotOfCreates(t *testing.T) {
	r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Contents: &snapshot.Contents{}})
	for range cap(r.slots) {
		r.slots <- struct{}{}
	}
	read := make(chan error, 1)
	go func() {
		secret := Object{Ref: object.Ref{Kind: "Secret", Name: "a"}}
		_, _, err := r.problems(t.Context(), []Object{secret}, nil, nil)
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil {
			t.Error("it found an object that is not in the snapshot")
		}
	case <-time.After(10 * time.Second):
		t.Error("the wait waits for creates")
	}
}
