package move

import (
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// PausedSince returns, by unit, since when a workload cluster has no controller, as the steps of a
// move say: since its pause was begun on the source, unless that was undone, until its release on
// the target; and since it was paused there again.
func PausedSince(steps []catalog.StepRecord) map[string]time.Time {
	pauses, releases := map[string]catalog.StepRecord{}, map[string]catalog.StepRecord{}
	for _, s := range steps {
		switch s.Step {
		case pauseStep(s.Step.Unit):
			pauses[s.Step.Unit] = s
		case restore.ReleaseStep(s.Step.Unit):
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
