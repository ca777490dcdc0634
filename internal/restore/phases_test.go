package restore

import (
	"slices"
	"strings"
	"testing"
)

// TestPhasesOfAUnitByItsState: the state alone says what is still done with a unit.
func TestPhasesOfAUnitByItsState(t *testing.T) {
	const copying = "shared create owners cluster-status inspect "
	fresh := unitState{creates: true, paused: true}
	with := func(s unitState, change func(s *unitState)) unitState {
		change(&s)
		return s
	}
	hook := func(s *unitState) { s.hasHook = true }
	move := func(s *unitState) { s.hasHook, s.requirePause, s.sourceAtWork = true, true, true }
	for _, tt := range []struct {
		name  string
		state unitState
		want  string
	}{
		{"a new one", fresh, copying + "acknowledge verify copied stage reality ready going-on release create-late"},
		{"a new one with a hook", with(fresh, hook),
			copying + "acknowledge verify stage reality ready going-on before-release release create-late"},
		{"a new one that stays paused", with(fresh, func(s *unitState) { s.noRelease = true }),
			copying + "verify copied"},
		{"one that stays paused, with a hook", with(fresh, func(s *unitState) {
			s.noRelease, s.hasHook = true, true
		}), copying + "verify copied"},
		{"a released one", unitState{creates: true, released: true, onceReleased: true}, "create-late"},
		{"a released one with a hook", unitState{creates: true, released: true, onceReleased: true,
			hasHook: true, requirePause: true}, "create-late"},
		{"one whose release died in the middle", unitState{creates: true, onceReleased: true},
			copying + "copied stage ready release create-late"},
		// what has a switch after that of the Cluster is still paused
		{"one with nothing to create, whose release died in the middle", unitState{onceReleased: true},
			copying + "copied stage ready release create-late"},
		{"one that was paused again", with(fresh, func(s *unitState) { s.onceReleased = true; move(s) }),
			copying + "acknowledge stage ready before-release release create-late"},
		{"adopted at work", unitState{}, copying + "copied adopt"},
		{"adopted at work, with a hook", with(unitState{}, hook), copying + "before-release adopt"},
		{"adopted paused", unitState{paused: true},
			copying + "acknowledge verify copied stage reality ready going-on release create-late"},
		{"somebody released the copy of a move", with(unitState{creates: true}, move),
			copying + "refuse stage ready before-release release create-late"}, // refuse ends it
		{"the release of a move died in the middle", with(unitState{creates: true, onceReleased: true},
			move), copying + "stage ready before-release release create-late"},
		{"partly adopted at work", unitState{creates: true},
			copying + "copied stage ready going-on release create-late"},
	} {
		var names []string
		for _, p := range unitPhases {
			if p.needed(tt.state) {
				names = append(names, p.name)
			}
		}
		if want := strings.Fields(tt.want); !slices.Equal(names, want) {
			t.Errorf("%s: %v, want %v", tt.name, names, want)
		}
	}
}

// TestI1RefusedUnitIsNeverReleased: where a phase that ends a unit is needed, it comes before the
// hook and the release.
func TestI1RefusedUnitIsNeverReleased(t *testing.T) {
	position := func(name string) int {
		return slices.IndexFunc(unitPhases, func(p phase) bool { return p.name == name })
	}
	if refuse := position("refuse"); refuse > position("before-release") ||
		refuse > position("verify") || position("ready") > position("before-release") ||
		position("before-release") > position("release") {
		t.Error("the phases are out of order")
	}
	if err := unitPhases[position("refuse")].run(t.Context(), nil, Unit{Name: "n/w"},
		nil); err == nil {
		t.Error("refuse lets a unit pass")
	}
}
