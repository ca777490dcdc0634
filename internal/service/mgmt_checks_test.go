package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestTheChecksThatNeedNoStoreGoOnWithoutIt: what the records would say is reported as unknown.
func TestTheChecksThatNeedNoStoreGoOnWithoutIt(t *testing.T) {
	away := &store.BucketError{Op: "list", Class: store.ErrUnreachable, Err: errors.New("no route")}
	for name, tt := range map[string]struct {
		away error
		want string
	}{
		"there is none": {nil, ""}, "no answer": {away, string(object.CodeOwnersAway)},
		"gone": {&goneError{place: "/mnt/a"}, string(object.CodeOwnersAway)},
	} {
		k := &mgmtCheck{mgmtView: mgmtView{workloads: []workload{{}}}, away: tt.away}
		if err := checkOwnership(t.Context(), k); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got string
		for _, f := range k.findings {
			got += string(f.Code)
			if f.Severity != object.Error || f.Hint == "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestMgmtCheckFindsTheMarksOfOperations: the lock of a move, the mark of an earlier version, and
// the field manager of a restore, which stays on a released copy and then says nothing.
func TestMgmtCheckFindsTheMarksOfOperations(t *testing.T) {
	c, err := catalog.Open(t.Context(), t.TempDir()+"/c.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		catalog.PostTestCheck(t, c)
		_ = c.Close()
	})
	operation := func(states ...catalog.State) string {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range states {
			if _, err := c.SetState(t.Context(), op.ID, state, catalog.Outcome{}); err != nil {
				t.Fatal(err)
			}
		}
		return string(op.ID)
	}
	running := operation(catalog.Running)
	failed := operation(catalog.Running, catalog.Failed)
	succeeded := operation(catalog.Running, catalog.Succeeded)
	const lost = "0123456789ab"
	for _, tt := range []struct {
		name, annotations, manager, want string
	}{
		{"lock of a lost move", `"mgmtd.dev/operation":"` + lost + `/1"`, "", "operation-mark " + lost},
		{"lock of a failed move", `"mgmtd.dev/operation":"` + failed + `/1"`, "",
			"operation-dead " + failed},
		{"mark of an earlier version", `"mgmtd.dev/operation":"` + lost + `"`, "",
			"operation-mark " + lost},
		{"copy of a lost restore", `"mgmtd.dev/was-paused":"absent"`, "mgmtd-" + lost,
			"operation-mark " + lost},
		{"copy of a failed restore", `"mgmtd.dev/was-paused":"absent"`, "mgmtd-" + failed,
			"operation-dead " + failed},
		{"copy that a restore left paused", `"mgmtd.dev/was-paused":"absent"`, "mgmtd-" + succeeded,
			"operation-dead " + succeeded},
		{"copy of a restore at work", `"mgmtd.dev/was-paused":"absent"`, "mgmtd-" + running, ""},
		{"released copy", `"a":"b"`, "mgmtd-" + lost, ""},
		{"somebody else's", `"mgmtd.dev/was-paused":"absent"`, "mgmtd-x", ""},
	} {
		w, err := decodeWorkload(kube.Kind{GroupKind: capi.Cluster}, fmt.Appendf(nil,
			`{"metadata":{"namespace":"n","name":"w","annotations":{%s},"managedFields":[
			{"manager":"kubectl","operation":"Apply"},{"manager":%q,"operation":"Update"}]}}`,
			tt.annotations, tt.manager))
		if err != nil {
			t.Fatal(err)
		}
		k := &mgmtCheck{mgmtView: mgmtView{workloads: []workload{w}}, catalog: c}
		if err := checkWorkloads(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		var got string
		for _, f := range k.findings {
			got += string(f.Code)
			if f.Unit != "n/w" || f.Hint == "" {
				t.Errorf("%s: finding %v", tt.name, f)
			}
			if _, id, found := strings.Cut(f.Message, "operation "); found {
				got += " " + id[:len(lost)]
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
