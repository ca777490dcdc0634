package move

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestTheStorageOfAHelmReleaseStaysOnTheSource though nothing in the graph needs it: the release
// may have made objects that are not captured. Any other Secret of its namespace goes.
func TestTheStorageOfAHelmReleaseStaysOnTheSource(t *testing.T) {
	m := &run{}
	g := graph.New(nil, nil)
	for name, want := range map[string]bool{"sh.helm.release.v1.platform.v7": true,
		"credentials": false} {
		ref := object.Ref{Kind: capi.Secret.Kind, Namespace: "platform", Name: name}
		if got := m.mayHaveUsers(g, ref); got != want {
			t.Errorf("%s may have users: %v", name, got)
		}
	}
}

// TestSharedObjectsAreRemovedBeforeTheirOwners: a template that only the first batch needs is owned
// by a class that a later one needs, too. Removed first, the class would take the template along,
// which its controller would see as being deleted.
func TestSharedObjectsAreRemovedBeforeTheirOwners(t *testing.T) {
	ref := func(name string) object.Ref { return object.Ref{Kind: "Shared", Namespace: "n", Name: name} }
	batchOf := func(uid string, action restore.Action, waves ...string) *batch {
		b := &batch{Source: map[string]objectState{}}
		for wave, name := range waves {
			b.Source[ref(name).String()] = objectState{UID: uid}
			b.Copy.Shared.Objects = append(b.Copy.Shared.Objects,
				restore.Object{Ref: ref(name), Wave: wave, Action: action})
		}
		return b
	}
	m := &run{batches: []*batch{batchOf("1", restore.Create, "class", "template"),
		batchOf("2", restore.Adopt, "class", "other", "second"),
		batchOf("3", restore.Skip, "template", "skipped")}}
	all := m.sharedOfBatches()
	var order []string
	for _, wave := range slices.Backward(restore.Waves(all.Copy.Shared.Objects)) {
		for _, o := range wave {
			order = append(order, o.Name+" "+all.Source[o.Ref.String()].UID)
		}
	}
	if want := []string{"second 2", "other 2", "template 1", "class 2"}; !slices.Equal(order, want) {
		t.Errorf("removed in the order %q, want %q", order, want)
	}
}
