//go:build api

package service

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// fenceFixture is a fleet and the daemon that fences it on the first management cluster.
type fenceFixture struct {
	*apiFixture
	s     *Server
	store *store.Store
}

func newFenceFixture(t *testing.T, prefix string) *fenceFixture {
	t.Helper()
	f := &fenceFixture{apiFixture: newAPIFixture(t, prefix)}
	f.s = f.daemon()
	t.Cleanup(func() { must(t, f.s.Close()) })
	l, err := f.s.location("")
	must(t, err)
	f.store, err = f.s.openLocation(t.Context(), l, nil, true)
	must(t, err)
	return f
}

// claim writes the ownership record of a unit for a management cluster.
func (f *fenceFixture) claim(st *store.Store, unit string, to object.Side, planned int64) {
	f.t.Helper()
	must(f.t, ownership.Claim(f.t.Context(), st, ownership.Request{WorkloadID: f.ids[unit],
		Workload: f.namespace + "/" + unit, To: to, Operation: "0123456789ab", Epoch: planned,
		Force: true}))
}

func (f *fenceFixture) fence(req *mgmtv1.FenceMgmtRequest) *mgmtv1.FenceMgmtResponse {
	f.t.Helper()
	req.Name = servers.Options(0).Name
	resp, err := (&mgmtService{s: f.s}).FenceMgmt(f.t.Context(), req)
	must(f.t, err)
	return resp
}

// codes are the codes of the findings about the fleet, by unit.
func (f *fenceFixture) codes(resp *mgmtv1.FenceMgmtResponse) map[string]object.Code {
	codes := map[string]object.Code{}
	for _, finding := range resp.GetFindings() {
		codes[finding.GetUnit()] = object.Code(finding.GetCode())
	}
	return codes
}

func (f *fenceFixture) name(unit string) string { return f.namespace + "/" + unit }

// state is "paused" or "at work", and why it is fenced.
func (f *fenceFixture) state(unit string) string {
	f.t.Helper()
	cluster := f.cluster(0, unit)
	state := "at work"
	if isPaused(cluster) {
		state = "paused"
	}
	return state + " " + cluster.GetAnnotations()[capi.AnnotationFenced]
}

func (f *fenceFixture) wantStates(what string, want ...string) {
	f.t.Helper()
	for i, unit := range units {
		if got := f.state(unit); got != want[i] {
			f.t.Errorf("%s: %s is %q, want %q", what, unit, got, want[i])
		}
	}
}

// unpause is what a GitOps tool does to a Cluster. It also writes to one that is not paused.
func (f *fenceFixture) unpause(unit string) error {
	f.t.Helper()
	return f.change(unit, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, false, "spec", "paused")
	})
}

func (f *fenceFixture) change(unit string, fn func(u *unstructured.Unstructured)) error {
	f.t.Helper()
	m := servers.Connect(f.t, 0)
	kinds, err := m.Reader().Kinds(f.t.Context())
	must(f.t, err)
	k, _ := kube.FindKind(kinds, capi.Cluster)
	return kube.Retry(f.t.Context(), func() error {
		u := f.cluster(0, unit)
		fn(u)
		_, err := m.Writer().Update(f.t.Context(), k, u)
		return err
	})
}

// createsAgain asserts what may be created in place of a fenced Cluster. Policy and binding are as
// they were made, which a second fence finds out: it writes to neither.
func (f *fenceFixture) createsAgain(unit string) {
	f.t.Helper()
	m := servers.Connect(f.t, 0)
	kinds, err := m.Reader().Kinds(f.t.Context())
	must(f.t, err)
	k, _ := kube.FindKind(kinds, capi.Cluster)
	p := &fence.Policy{Reader: m.Reader(), Writer: m.Writer(), Prober: m.Prober(), Kinds: kinds}
	version := m.KubernetesVersion()
	state, err := p.State(f.t.Context())
	if err != nil || !state.Enforced {
		f.t.Errorf("on Kubernetes %s the policy is not what was made: %v, %v", version, state, err)
	}
	u := f.cluster(0, unit)
	for _, field := range []string{"uid", "resourceVersion", "managedFields"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	for _, paused := range []bool{false, true} {
		_ = unstructured.SetNestedField(u.Object, paused, "spec", "paused")
		_, err := m.Prober().DryRunCreate(f.t.Context(), k, u)
		if denied := err != nil && strings.Contains(err.Error(), "'mgmtd-moved'"); denied == paused {
			f.t.Errorf("create it, paused %v: %v", paused, err)
		}
	}
	// of a Cluster that is gone an operator may use the name again
	gone := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: f.namespace,
		Name: "gone"}
	must(f.t, p.Arm(f.t.Context(), []fence.Cluster{{Ref: gone, ID: "id-of-gone"}}))
	u.SetName(gone.Name)
	unstructured.RemoveNestedField(u.Object, "spec", "paused")
	if _, err := m.Prober().DryRunCreate(f.t.Context(), k, u); !apierrors.IsForbidden(err) {
		f.t.Errorf("create what is gone: %v", err)
	}
	lift := &mgmtv1.FenceMgmtRequest{Lift: true, DryRun: true, Selection: &mgmtv1.Selection{
		Workloads: []string{f.name("gone")}}}
	for _, lift.DryRun = range []bool{true, false} {
		if resp := f.fence(lift); !slices.Equal(resp.GetLifted(), lift.GetSelection().GetWorkloads()) {
			f.t.Errorf("lifted %v", resp)
		}
	}
	allowed := func() bool {
		_, err := m.Prober().DryRunCreate(f.t.Context(), k, u)
		return err == nil
	}
	for deadline := time.Now().Add(10 * time.Second); !allowed(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatal("it is not allowed after the lift")
		}
	}
	must(f.t, p.Disarm(f.t.Context(), []object.Ref{gone}))
}

// otherSigner opens the store with keys that nobody trusts.
func (f *fenceFixture) otherSigner() *store.Store {
	f.t.Helper()
	dir := f.t.TempDir()
	_, err := store.Keygen(filepath.Join(dir, "keys"), time.Now())
	must(f.t, err)
	return f.openWith(store.KeyOptions{SigningKeyFile: filepath.Join(dir, "keys", store.SigningFile)})
}

// otherHost opens the store as another host with the same keys does: the daemon learns of nothing
// that is written through it.
func (f *fenceFixture) otherHost() *store.Store {
	f.t.Helper()
	l, err := f.s.location("")
	must(f.t, err)
	return f.openWith(store.KeyOptions{Recipients: l.Store.Recipients,
		SigningKeyFile: l.Store.SigningKeyFile, TrustedKeyFiles: l.Store.TrustedKeyFiles})
}

func (f *fenceFixture) openWith(o store.KeyOptions) *store.Store {
	f.t.Helper()
	keys, err := store.LoadKeys(o)
	must(f.t, err)
	st, err := store.Open(f.t.Context(), store.Options{Bucket: directory.New(filepath.Join(f.dir,
		"store")), Keys: keys})
	must(f.t, err)
	return st
}

var elsewhere = object.Side{Name: "elsewhere", UID: "11111111-2222-3333-4444-555555555555"}

// TestAPII1FencePausesWhatTrustedRecordsGiveToAnother: of three workload clusters one was restored
// elsewhere, one has a record that nobody vouches for, and one has none.
func TestAPII1FencePausesWhatTrustedRecordsGiveToAnother(t *testing.T) {
	f := newFenceFixture(t, "fence")
	here := object.Side{Name: servers.Options(0).Name, UID: servers.Connect(t, 0).UID()}
	spec := func(unit string) map[string]any {
		u := f.cluster(0, unit)
		annotations := u.GetAnnotations()
		return map[string]any{"spec": u.Object["spec"], "annotations": annotations}
	}
	before := spec(units[0])
	f.claim(f.store, units[0], elsewhere, 0)
	f.claim(f.otherSigner(), units[1], elsewhere, 0)
	dry := f.fence(&mgmtv1.FenceMgmtRequest{DryRun: true})
	if !slices.Contains(dry.GetPaused(), f.name(units[0])) {
		t.Errorf("a dry run would pause %v", dry.GetPaused())
	}
	f.wantStates("a dry run", "at work ", "at work ", "at work ")
	resp := f.fence(&mgmtv1.FenceMgmtRequest{})
	if !slices.Equal(resp.GetPaused(), []string{f.name(units[0])}) {
		t.Errorf("paused %v", resp.GetPaused())
	}
	if codes := f.codes(resp); codes[f.name(units[0])] != "" ||
		codes[f.name(units[1])] != object.CodeOwnerUntrusted || codes[f.name(units[2])] != "" {
		t.Errorf("findings %v", resp.GetFindings())
	}
	f.wantStates("fenced", "paused record", "at work ", "at work ")
	if resp := f.fence(&mgmtv1.FenceMgmtRequest{}); len(resp.GetPaused()) > 0 ||
		!slices.Contains(resp.GetAlready(), f.name(units[0])) {
		t.Errorf("the second time: paused %v, already %v", resp.GetPaused(), resp.GetAlready())
	}
	mine := &mgmtv1.Selection{Namespaces: []string{f.namespace}}
	codes := f.codes(f.fence(&mgmtv1.FenceMgmtRequest{Lift: true, Selection: mine}))
	if codes[f.name(units[0])] != object.CodeOwnedElsewhere {
		t.Errorf("lift while another owns it: %v", codes)
	}
	f.wantStates("lift refused", "paused record", "at work ", "at work ")

	f.claim(f.store, units[0], here, 1)
	resp = f.fence(&mgmtv1.FenceMgmtRequest{Lift: true, Selection: mine})
	if !slices.Equal(resp.GetLifted(), []string{f.name(units[0])}) {
		t.Errorf("lifted %v, findings %v", resp.GetLifted(), resp.GetFindings())
	}
	f.wantStates("lifted", "at work ", "at work ", "at work ")
	if after := spec(units[0]); !reflect.DeepEqual(before, after) {
		t.Errorf("the lift left\n%v\nof\n%v", after, before)
	}
}

// TestAPIFenceOfASelectionPausesItWithAnyOwner: the way out when the controllers of a source are
// dead, also without the store. Nothing acknowledges on the second server, which has no stand-in
// for controllers here.
func TestAPIFenceOfASelectionPausesItWithAnyOwner(t *testing.T) {
	f := newFenceFixture(t, "select")
	dir := filepath.Join(f.dir, "store")
	must(t, os.Rename(dir, dir+"-away"))
	if resp := f.fence(&mgmtv1.FenceMgmtRequest{DryRun: true, Selection: &mgmtv1.Selection{
		Workloads: []string{f.name(units[0])}}}); len(resp.GetPaused()) != 1 {
		t.Errorf("without the store: paused %v", resp.GetPaused())
	}
	_, err := (&mgmtService{s: f.s}).FenceMgmt(t.Context(),
		&mgmtv1.FenceMgmtRequest{Name: servers.Options(0).Name})
	if !isStoreAway(err) {
		t.Errorf("by records that are not there: %v", err)
	}
	check, err := (&mgmtService{s: f.s}).CheckMgmt(t.Context(),
		&mgmtv1.CheckMgmtRequest{Name: servers.Options(0).Name})
	must(t, err)
	if !slices.ContainsFunc(check.GetFindings(), func(f *mgmtv1.Finding) bool {
		return object.Code(f.GetCode()) == object.CodeOwnersAway
	}) {
		t.Errorf("a check without the store finds %v", check.GetFindings())
	}
	must(t, os.Rename(dir+"-away", dir))
	resp := f.fence(&mgmtv1.FenceMgmtRequest{Selection: &mgmtv1.Selection{
		Workloads: []string{f.name(units[0]), f.name(units[1])}}})
	if len(resp.GetPaused()) != 2 || len(resp.GetFindings()) > 0 {
		t.Errorf("paused %v, findings %v", resp.GetPaused(), resp.GetFindings())
	}
	f.wantStates("fenced", "paused operator", "paused operator", "at work ")
	if err := f.unpause(units[0]); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "mgmtd-moved") {
		t.Errorf("somebody unpauses a fenced Cluster: %v", err)
	}
	if err := f.unpause(units[2]); err != nil {
		t.Errorf("a write of a Cluster that is not fenced: %v", err)
	}
	f.wantStates("fenced", "paused operator", "paused operator", "at work ")
	f.createsAgain(units[0])
	resp = f.fence(&mgmtv1.FenceMgmtRequest{Lift: true, Selection: &mgmtv1.Selection{
		Namespaces: []string{f.namespace}}})
	if len(resp.GetLifted()) != 2 || len(resp.GetFindings()) > 0 {
		t.Errorf("lifted %v, findings %v", resp.GetLifted(), resp.GetFindings())
	}
	f.wantStates("lifted", "at work ", "at work ", "at work ")
	list, err := servers.Connect(t, 0).Reader().Get(t.Context(), kube.ConfigMapKind, "kube-system",
		"mgmtd-moved")
	if err == nil {
		data, _, _ := unstructured.NestedStringMap(list.Object, "data") // that of other tests is there
		maps.DeleteFunc(data, func(key, _ string) bool { return !strings.HasPrefix(key, f.namespace) })
		if len(data) > 0 {
			t.Errorf("on the list of the policy is left: %v", data)
		}
	} else if !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	servers.Fleet(t, 0, "--namespace-prefix", "dead-", "--workloads", "1", "--machines", "1",
		"--fast")
	dead := &mgmtv1.Selection{Namespaces: []string{"dead-team-0000"}}
	resp = f.fence(&mgmtv1.FenceMgmtRequest{Selection: dead, Wait: durationpb.New(time.Second)})
	if len(resp.GetPaused()) != 1 || len(resp.GetFindings()) != 1 ||
		object.Code(resp.GetFindings()[0].GetCode()) != object.CodeFenceUnacknowledged {
		t.Errorf("without controllers: paused %v, findings %v", resp.GetPaused(), resp.GetFindings())
	}
}
