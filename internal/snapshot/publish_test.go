package snapshot

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestValidateCutRefusesWhatCannotBeOpened: an object that occurs twice, or is in no pack, makes a
// snapshot that nobody can open.
func TestValidateCutRefusesWhatCannotBeOpened(t *testing.T) {
	node := func(name, pack string) *graph.Node {
		return &graph.Node{Ref: object.Ref{Kind: "Secret", Namespace: "ns", Name: name}, Pack: pack}
	}
	good := func() []*graph.Node { return []*graph.Node{node("a", "packs/a"), node("b", "packs/b")} }
	if err := validateCut(&capture.Cut{Graph: graph.New(good(), nil)}); err != nil {
		t.Error(err)
	}
	for what, nodes := range map[string][]*graph.Node{
		"an object twice":      append(good(), node("a", "packs/a")),
		"an object in no pack": append(good(), node("c", "")),
	} {
		if err := validateCut(&capture.Cut{Graph: graph.New(nodes, nil)}); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
