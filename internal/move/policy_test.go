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
	c, journal := newJournal(t, catalog.Options{})
	server := &noPolicies{}
	m := &run{Options: Options{Journal: journal}, Plan: &Plan{},
		policy: &fence.Policy{Reader: server}, unarmed: map[string]bool{}}
	m.arm(t.Context(), "ns/a")
	m.arm(t.Context(), "ns/b")
	found := findingsOf(t, c, journal)
	if len(found) != 1 || found[0].Code != object.CodePolicyNotArmed || server.asked != 1 {
		t.Errorf("findings %v, asked %d times", found, server.asked)
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
