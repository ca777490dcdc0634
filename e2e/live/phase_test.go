package live

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// noPhase: the store need not have an operation without steps.
const noPhase = "before the first step"

// movePhases are the phases of each move of a workload cluster, in their order.
var movePhases = []string{"lock", "pre-copy", "pause", "copy", "hand-over", "release", "post-flight",
	"retire", "shared"}

// stepPhases are the phases of the steps that docs and tests do not tell apart. Every other step
// has a phase of its own.
var stepPhases = map[string]string{
	"pre-create": "pre-copy", "pre-owners": "pre-copy", "pre-cluster-status": "pre-copy",
	"create-p": "pre-copy", "verify-shared-p": "pre-copy",
	"create": "copy", "create-b": "copy", "owners": "copy", "cluster-status": "copy",
	"verify-shared-b":  "copy",
	"release-shared-b": "shared", "retire-shared": "shared",
}

var (
	wave        = regexp.MustCompile(`/\d+$`)
	batchNumber = regexp.MustCompile(`(-[bp])\d+$`)
)

// phaseOf returns the phase of a step: that of "team-a/web/pre-create/03" is "pre-copy".
func phaseOf(step string) string {
	step = wave.ReplaceAllString(step, "")
	step = batchNumber.ReplaceAllString(step[strings.LastIndexByte(step, '/')+1:], "$1")
	if phase, ok := stepPhases[step]; ok {
		return phase
	}
	return step
}

// lastPhase returns the phase of the newest step in the history of the newest operation, if it was
// begun since a time.
func (o *operator) lastPhase(since time.Time) string {
	o.t.Helper()
	out := o.exec(o.t.Context(), o.state, "operation", "watch", "latest", "--standalone", "-o", "json")
	var show struct {
		Events []struct {
			Time time.Time `json:"time"`
			Step string    `json:"step"`
		} `json:"events"`
	}
	if out.decode(&show) != nil { // it was killed before it had an operation
		return noPhase
	}
	for _, e := range slices.Backward(show.Events) {
		if e.Time.Before(since) {
			break
		}
		if e.Step != "" {
			return phaseOf(e.Step)
		}
	}
	return noPhase
}

// longestRun ends a command that hangs. One that is suspended often takes minutes.
const longestRun = 4 * time.Minute

// timeBetweenLooks is shorter than all phases of movePhases.
const timeBetweenLooks = 50 * time.Millisecond

// runInto runs a command and kills it with kill -9 in one of the phases that are wanted, unless it
// ends before. It suspends the command for each look at its history, so that the command gets past
// no phase meanwhile.
func (o *operator) runInto(wanted []string, args ...string) (out output, killed bool) {
	o.t.Helper()
	began := time.Now()
	process, done := o.begin(args...)
	for {
		select {
		case out = <-done:
			return out, false
		case <-time.After(timeBetweenLooks):
		}
		_ = process.Signal(syscall.SIGSTOP)
		if slices.Contains(wanted, o.phaseOfSuspended(began)) || time.Since(began) > longestRun {
			_ = process.Kill()
			out = <-done
			return out, out.code == codeKilled
		}
		_ = process.Signal(syscall.SIGCONT)
	}
}

// phaseOfSuspended returns the last phase of a command that is suspended, and holds its catalog.
func (o *operator) phaseOfSuspended(since time.Time) string {
	o.t.Helper()
	catalog := filepath.Join("mgmtd", "catalog.db")
	content, err := os.ReadFile(filepath.Join(o.state, catalog))
	if err != nil { // it has none yet
		return noPhase
	}
	look := &operator{fixture: o.fixture, t: o.t, state: o.t.TempDir()}
	file := filepath.Join(look.state, catalog)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		o.t.Fatal(err)
	}
	defer os.RemoveAll(look.state)
	return look.lastPhase(since)
}
