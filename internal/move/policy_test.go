package move

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// noPolicies is an API server that lets nobody read admission policies.
type noPolicies struct {
	fence.Reader
	asked int
	err   error // instead of the one about a missing right
}

func (n *noPolicies) Get(context.Context, kube.Kind, string, string) (*unstructured.Unstructured,
	error) {
	if n.asked++; n.err != nil {
		return nil, n.err
	}
	return nil, apierrors.NewForbidden(schema.GroupResource{}, "mgmtd-moved", errors.New("no right"))
}

// TestAMoveGoesOnWithoutAdmissionPolicies: one finding says so, and the server is asked once.
func TestAMoveGoesOnWithoutAdmissionPolicies(t *testing.T) {
	c, err := catalog.Open(t.Context(), t.TempDir()+"/c.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindMove})
	if err == nil {
		_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
	}
	if err != nil {
		t.Fatal(err)
	}
	server := &noPolicies{}
	m := &run{Options: Options{Journal: c.Journal(op.ID, catalog.JournalOptions{})}, Plan: &Plan{},
		policy: &fence.Policy{Reader: server}, unarmed: map[string]bool{}}
	m.arm(t.Context(), "ns/a")
	m.arm(t.Context(), "ns/b")
	if _, err := c.SetState(t.Context(), op.ID, catalog.Succeeded, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	var codes []object.Code
	for e, err := range c.Watch(t.Context(), op.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Finding != nil {
			codes = append(codes, e.Finding.Code)
		}
	}
	if len(codes) != 1 || codes[0] != object.CodePolicyNotArmed || server.asked != 1 {
		t.Errorf("findings %v, asked %d times", codes, server.asked)
	}
	// An answer that says nothing of others is asked for again for them only: a unit does not wait
	// in its pause for what it has waited for before.
	server = &noPolicies{err: errors.New("no answer")}
	m.policy.Reader, m.unarmed = server, map[string]bool{}
	for range 2 {
		m.arm(t.Context(), "ns/a")
	}
	m.arm(t.Context(), "ns/b")
	if server.asked != 2 {
		t.Errorf("asked %d times for two units", server.asked)
	}
	// Before they are removed, it is asked once more, for the state and for each of them.
	m.armLeaving(t.Context(), []*leaving{leavingUnits("ns/a", "ns/b")})
	if server.asked != 5 {
		t.Errorf("asked %d times until they are removed", server.asked)
	}
	server.err = nil // it may not read them, which ends it for all
	m.armLeaving(t.Context(), []*leaving{leavingUnits("ns/a", "ns/b")})
	if server.asked != 7 {
		t.Errorf("asked %d times without the right to read", server.asked)
	}
}
