package observe

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

func cluster(isPaused bool) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"paused": isPaused}}}
	o.SetNamespace("team")
	o.SetName("web")
	return o
}

func TestHands(t *testing.T) {
	h := &Hands{holds: map[string]map[string]hold{}}
	h.take("a", watch.Added, cluster(false))
	h.take("a", watch.Modified, cluster(true))
	h.take("b", watch.Added, cluster(true))
	h.take("b", watch.Modified, cluster(false))
	h.take("a", watch.Deleted, cluster(true))
	if twice := h.Twice(); len(twice) > 0 {
		t.Errorf("a move is taken for two hands: %v", twice)
	}
	if pauses := h.Pauses("a", "b"); len(pauses) != 1 || pauses["team/web"] <= 0 {
		t.Errorf("pauses: %v", pauses)
	}
	if pauses := h.Pauses("b", "a"); len(pauses) > 0 {
		t.Errorf("pauses of the way back: %v", pauses)
	}
	// Whoever takes it up while another one has it is caught, in either order.
	h.take("a", watch.Added, cluster(false))
	want := []string{"team/web was in the hands of b and a at once"}
	if twice := h.Twice(); !slices.Equal(twice, want) {
		t.Errorf("got %v, want %v", twice, want)
	}
}

func TestLives(t *testing.T) {
	machine := Ref{Group: coreGroup, Kind: "Machine", Namespace: "team", Name: "one"}
	template := Ref{Group: infraGroup, Kind: "DevMachineTemplate", Namespace: "team", Name: "one"}
	before := Objects{machine: cluster(false), template: cluster(false)}
	for name, c := range map[string]struct {
		events []Event
		want   int
	}{
		"to and fro": {[]Event{{Ref: machine, What: Died}, {Ref: machine, What: Born}}, 0},
		"never":      {nil, 1},
		"twice": {[]Event{{Ref: machine, What: Died}, {Ref: machine, What: Born},
			{Ref: machine, What: Died}, {Ref: machine, What: Born}}, 1},
		"shown": {[]Event{{Ref: machine, What: Dying}, {Ref: machine, What: Died},
			{Ref: machine, What: Born}}, 1},
		"another, too": {[]Event{{Ref: machine, What: Died}, {Ref: machine, What: Born},
			{Ref: template, What: Born}, {Ref: Ref{Kind: "Machine", Name: "x"}, What: Born}}, 1},
	} {
		if got := Lives(c.events, before, 1, 1); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
