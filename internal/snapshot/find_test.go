package snapshot

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/graph"
)

func TestNextTellsWhatBecameOfAnObject(t *testing.T) {
	node := func(uid, version, content string) *Found {
		return &Found{Node: &graph.Node{UID: uid, ResourceVersion: version, Content: content}}
	}
	held, omitted := node("u", "1", "a"), &Found{Node: &graph.Node{}, Omitted: true}
	for _, tt := range []struct {
		name    string
		was, is *Found
		first   bool
		want    History
	}{
		{"never there", nil, nil, false, ""},
		{"in the oldest", nil, held, true, Oldest},
		{"not in the oldest", nil, nil, true, ""},
		{"new", nil, held, false, Appeared},
		{"gone", held, nil, false, Disappeared},
		{"omitted and gone", omitted, nil, false, Disappeared},
		{"as it was", held, node("u", "1", "a"), false, Same},
		{"other bytes", held, node("u", "1", "b"), false, Rewritten},
		{"written to", held, node("u", "2", "a"), false, Rewritten},
		{"created again", held, node("v", "2", "b"), false, Recreated},
		{"left out since", held, omitted, false, Rewritten},
		{"held again", omitted, held, false, Rewritten},
		{"still left out", omitted, omitted, false, Same},
	} {
		if got := Next(tt.was, tt.is, tt.first); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
