package move

import (
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// releaseStep is the step of package restore that releases a unit.
func releaseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "release"} }

// PausedSince returns, by unit, since when a workload cluster has no controller, as the steps of a
// move say: since its pause was begun on the source, unless that was undone, until its release on
// the target; and since it was paused there again.
func PausedSince(steps []catalog.StepRecord) map[string]time.Time {
	pauses, releases := map[string]catalog.StepRecord{}, map[string]catalog.StepRecord{}
	for _, s := range steps {
		switch s.Step {
		case pauseStep(s.Step.Unit):
			pauses[s.Step.Unit] = s
		case releaseStep(s.Step.Unit):
			releases[s.Step.Unit] = s
		}
	}
	since := map[string]time.Time{}
	for unit, pause := range pauses {
		release, released := releases[unit]
		switch {
		case released && release.State == catalog.StepDone, pause.State == catalog.StepUndone:
		case released && release.State == catalog.StepUndone:
			since[unit] = release.Ended
		default:
			since[unit] = pause.Begun
		}
	}
	return since
}
