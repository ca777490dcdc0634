package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// report prints the result of an operation and returns its exit code as an error.
func (p *program) report(o *outcome) error {
	if err := p.print(o.operation, func(w io.Writer) { p.writeReport(w, o) }); err != nil {
		return err
	}
	return p.conclude(o)
}

// conclude prints how to go on, and returns the exit code as an error.
func (p *program) conclude(o *outcome) error {
	p.operation = o.operation
	code := o.exitCode()
	switch {
	case o.detached && !isEnd(o.operation.GetState()):
		p.say("%s", p.goesOn(o.operation))
	case p.offerNext(o):
	case o.cause != nil && code == o.cause.ExitCode():
		p.refuse(o.cause)
	}
	if code == service.ExitDone {
		return nil
	}
	return exit(code)
}

// goesOn says that an operation goes on in the daemon, whatever becomes of this command.
func (p *program) goesOn(op *mgmtv1.Operation) string {
	return fmt.Sprintf("operation %s goes on in the daemon; to watch it:\n  %s", op.GetId(),
		p.commandLine(nounOperation, "watch", op.GetId()))
}

// prepareForAtOnce stores what the second interrupt prints about the operation of this command. The
// interrupt cannot put that together: this command is then still at work.
func (p *program) prepareForAtOnce(c *connection) {
	op := p.operation
	if c.stop == nil {
		p.atOnce.Store(new(p.goesOn(op)))
		return
	}
	text := fmt.Sprintf("operation %s is left as it is, as after a crash; to see what it has done:\n"+
		"  %s", op.GetId(), p.commandLine(nounOperation, "show", op.GetId()))
	if slices.Contains(changing, op.GetKind()) {
		text += fmt.Sprintf("\nto go on:\n  %s\nto undo what is neither released nor handed over:\n  %s",
			p.commandLine(nounOperation, "resume", op.GetId()),
			p.commandLine(nounOperation, "rollback", op.GetId()))
	}
	p.atOnce.Store(&text)
}

// offerNext prints how to go on with an operation whose run has ended with work left, and reports
// whether it has.
func (p *program) offerNext(o *outcome) bool {
	id, code := o.operation.GetId(), o.exitCode()
	switch {
	case o.operation.GetState() == mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY:
		words := []string{"operation", "resume", id}
		if len(p.identity.files) == 0 {
			words = append(words, "--identity", "FILE")
		}
		p.say("it waits for an identity, which is never stored; to go on:\n  %s", p.commandLine(words...))
	case code == service.ExitIncomplete && o.lost && !isEnd(o.operation.GetState()):
		p.say("how operation %s ended is not known here, and it may have changed something. Once the "+
			"catalog can be written again, or with another file for it, this goes on:\n  %s\n"+
			"and this undoes what is neither released nor handed over:\n  %s", id,
			p.commandLine(nounOperation, "resume", id), p.commandLine(nounOperation, "rollback", id))
	case code == service.ExitIncomplete && len(o.machinesChanged()) > 0:
		p.offerAccept(o)
	case code == service.ExitIncomplete && onlyBlocked(o.operation):
		p.say("something was changed, and what is left is blocked by findings; once their causes are "+
			"mended, plan the %s again and run it: it adopts what is there\n  %s",
			o.operation.GetKind(), p.planAgain(o.operation))
	case code == service.ExitIncomplete && o.operation.GetKind() == kindPrune:
		p.say("something was removed and work is left; to go on:\n  %s", p.commandLine("prune", "run"))
	case code == service.ExitIncomplete && o.operation.GetKind() == kindCopy:
		p.say("something was copied and work is left; to go on:\n  %s", p.copyAgain(o.operation))
	case code == service.ExitIncomplete:
		p.offerWays(o)
	default:
		return false
	}
	return true
}

// offerWays prints how to go on with a restore or a move of which work is left, and how to undo it.
func (p *program) offerWays(o *outcome) {
	op := o.operation
	resume := p.commandLine("operation", "resume", op.GetId())
	rollback := p.commandLine("operation", "rollback", op.GetId())
	if givenBack(op) {
		p.say("the source has back what is given-back; copies on %s stay paused: once it answers, "+
			"this removes them:\n  %s", op.GetTarget(), rollback)
		if handedOver(op) {
			p.say("to go on with what is handed over:\n  %s", resume)
		}
		return
	}
	p.say("something was changed and work is left; to go on:\n  %s", resume)
	switch {
	case op.GetKind() != kindMove:
	case o.proposes(object.CodeTargetAway):
		p.say("if %s does not come back soon, this gives back to %s what is not handed over:\n  %s",
			op.GetTarget(), op.GetSource(), p.expand(findingCommands[object.CodeTargetAway]))
	case o.proposes(object.CodeSourceAway):
		p.say("if %s does not come back soon, this releases on %s what is handed over:\n  %s",
			op.GetSource(), op.GetTarget(), p.expand(findingCommands[object.CodeSourceAway]))
	case !handedOver(op):
		p.say("nothing is handed over yet; to undo it instead:\n  %s", rollback)
	}
}

// proposes reports whether the run had a finding of this code with a hint: there is a way on.
func (o *outcome) proposes(code object.Code) bool {
	return slices.ContainsFunc(o.findings, func(f *mgmtv1.Finding) bool {
		return f.GetCode() == string(code) && f.GetHint() != ""
	})
}

// machinesChanged returns the units whose Machines came or went after the release, which stopped
// the run.
func (o *outcome) machinesChanged() []string {
	var units []string
	for _, f := range o.findings {
		if f.GetCode() == string(object.CodeObserve) && f.GetUnit() != "" {
			units = append(units, f.GetUnit())
		}
	}
	slices.Sort(units)
	return slices.Compact(units)
}

// offerAccept prints how to go on after a run that Machines stopped: a resume alone would stop for
// the same reason.
func (p *program) offerAccept(o *outcome) {
	id, units := o.operation.GetId(), o.machinesChanged()
	text := fmt.Sprintf("nothing further is released: Machines of %s came or went after the release. "+
		"To see which:\n", strings.Join(units, ", "))
	for _, unit := range units {
		namespace, name, _ := strings.Cut(unit, "/")
		text += fmt.Sprintf("  kubectl get machines.%s --namespace %s --selector %s=%s\n",
			capi.GroupCore, quote(namespace), capi.LabelClusterName, quote(name))
	}
	text += "Once they are what you want, accept that and go on:\n"
	for _, unit := range units {
		text += "  " + p.commandLine("operation", "accept", id, unit) + "\n"
	}
	p.say("%s  %s", text, p.commandLine("operation", "resume", id))
}

// planAgain returns the command that plans an operation again. A resume has no flags of a plan: the
// operation names what it was about.
func (p *program) planAgain(op *mgmtv1.Operation) string {
	words := []string{op.GetKind(), "plan"}
	if path := p.path(); len(path) > 0 && path[0] == op.GetKind() {
		return p.planCommand(op.GetKind())
	}
	if op.GetKind() == kindRestore && op.GetSnapshotId() != "" {
		words = append(words, "--snapshot", op.GetSnapshotId())
	}
	if !p.standalone.enabled || p.given("config") {
		for _, f := range []struct{ name, value string }{{"source", op.GetSource()},
			{"target", op.GetTarget()}, {"location", op.GetLocation()}} {
			if f.value != "" && (f.name != "source" || op.GetKind() == kindMove) {
				words = append(words, "--"+f.name, f.value)
			}
		}
	}
	return p.commandLine(words...)
}

// onlyBlocked reports whether every unit is done but those that pre-flight blocks. A resume uses
// the same plan and would not touch them.
func onlyBlocked(op *mgmtv1.Operation) bool {
	blocked, copied, released := false, false, false
	for name, state := range op.GetUnits() {
		copied, released = copied || state == "copied", released || state == "released"
		switch {
		case state == "blocked":
			blocked = true
		case op.GetKind() == kindMove && name != "" && state != "retired":
			return false
		case state != "copied" && !slices.Contains(restedStates, state):
			return false
		}
	}
	// A run that stopped leaves copies that it has yet to release.
	return blocked && !(copied && released) &&
		op.GetState() == mgmtv1.OperationState_OPERATION_STATE_FAILED
}

// handedOver reports whether a move has handed over a workload cluster, which can then only go
// forward.
func handedOver(op *mgmtv1.Operation) bool {
	for name, state := range op.GetUnits() {
		if name != "" && slices.Contains([]string{"handed-over", "released", "retired"}, state) {
			return true
		}
	}
	return false
}

// givenBack reports whether a rollback without the target has given a workload cluster back.
func givenBack(op *mgmtv1.Operation) bool {
	for _, state := range op.GetUnits() {
		if state == "given-back" {
			return true
		}
	}
	return false
}

// maxFindings is how many findings a report prints; "operation watch" has them all.
const maxFindings = 50

func (p *program) writeReport(w io.Writer, o *outcome) {
	op := o.operation
	fmt.Fprintf(w, "%s %s %s", op.GetKind(), op.GetId(), stateWord(op.GetState()))
	if op.GetCreateTime().IsValid() && op.GetUpdateTime().IsValid() {
		fmt.Fprintf(w, " after %s", lasted(op))
	}
	fmt.Fprintln(w)
	var l pairs
	l.addFacts(p, op)
	l.write(w)
	writeUnitsLeft(w, op)
	worth := slices.DeleteFunc(slices.Clone(o.findings),
		func(f *mgmtv1.Finding) bool { return f.GetSeverity() < mgmtv1.Severity_SEVERITY_WARNING })
	if len(worth) == 0 {
		return
	}
	fmt.Fprintln(w)
	slices.SortStableFunc(worth, func(a, b *mgmtv1.Finding) int {
		return int(b.GetSeverity()) - int(
			a.GetSeverity())
	})
	writeFindings(w, worth[:min(len(worth), maxFindings)])
	if more := len(worth) - maxFindings; more > 0 {
		fmt.Fprintf(w, "and %s more: mgmtctl operation watch %s\n", count(more, "finding"), op.GetId())
	}
}

// addFacts adds the sides, location, snapshot, units and message of an operation.
func (l *pairs) addFacts(p *program, op *mgmtv1.Operation) {
	l.add("source", op.GetSource())
	l.add("target", op.GetTarget())
	l.add("location", op.GetLocation())
	l.add("snapshot", op.GetSnapshotId())
	if op.GetRetainedUntil().IsValid() {
		l.add("retained until", p.when(op.GetRetainedUntil()))
	}
	l.addCopy(op.GetCopy())
	l.add("workload clusters", unitCounts(op))
	p.operation = op
	l.add("message", p.completeMessage(op.GetMessage(), op.GetHintKey()))
}

// writeUnitsLeft writes the units that have not reached their final state.
func writeUnitsLeft(w io.Writer, op *mgmtv1.Operation) {
	if op.GetState() == mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED || !isEnd(op.GetState()) {
		return
	}
	t := newTable("WORKLOAD CLUSTER", "STATE")
	for _, name := range unitNames(op) {
		if state := op.GetUnits()[name]; !rested(op, state) {
			t.add(unitText(name), state)
		}
	}
	if len(t.rows) > 1 {
		fmt.Fprintln(w)
		t.write(w)
	}
}

// restedStates are the states in which nothing is left to do for a unit. In a move, a released unit
// has yet to be retired.
var restedStates = []string{"released", "retired", "rolled-back"}

func rested(op *mgmtv1.Operation, state string) bool {
	return slices.Contains(restedStates, state) && (op.GetKind() != kindMove || state != "released")
}

func unitNames(op *mgmtv1.Operation) []string {
	names := make([]string, 0, len(op.GetUnits()))
	for name := range op.GetUnits() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func unitCounts(op *mgmtv1.Operation) string {
	states := map[string]int{}
	for _, state := range op.GetUnits() {
		states[state]++
	}
	return counts(states)
}

// unitText names a unit; the shared objects have no name.
func unitText(name string) string {
	if name == "" {
		return "(shared)"
	}
	return name
}

// eventText returns an event as one line.
func eventText(e *mgmtv1.Event) string {
	var words []string
	switch e.GetType() {
	case mgmtv1.EventType_EVENT_TYPE_OPERATION:
		words = append(words, "operation", stateWord(e.GetState()))
	case mgmtv1.EventType_EVENT_TYPE_UNIT:
		if words = []string{"workload cluster", e.GetUnit(), e.GetUnitState()}; e.GetUnit() == "" {
			words = []string{"shared objects", e.GetUnitState()}
		}
	case mgmtv1.EventType_EVENT_TYPE_STEP:
		words = append(words, "step", e.GetStep(), e.GetStepState())
		if e.GetUnit() != "" {
			words = append(words, "["+e.GetUnit()+"]")
		}
	case mgmtv1.EventType_EVENT_TYPE_PROGRESS:
		return progressText(e)
	case mgmtv1.EventType_EVENT_TYPE_FINDING:
		text := word(e.GetFinding().GetSeverity(), "SEVERITY_") + " " + findingText(e.GetFinding())
		if hint := e.GetFinding().GetHint(); hint != "" {
			text += " (" + hint + ")"
		}
		return text
	default:
		return e.GetMessage()
	}
	text := strings.Join(words, " ")
	if e.GetMessage() != "" {
		text += ": " + e.GetMessage()
	}
	return text
}

func progressText(e *mgmtv1.Event) string {
	if e.GetTotal() > 0 {
		return fmt.Sprintf("%s: %d of %d", e.GetProgress(), e.GetDone(), e.GetTotal())
	}
	return fmt.Sprintf("%s: %d", e.GetProgress(), e.GetDone())
}

// lasted returns how long an operation took, including the time between its runs.
func lasted(op *mgmtv1.Operation) string {
	return duration.HumanDuration(max(0, op.GetUpdateTime().AsTime().Sub(op.GetCreateTime().AsTime())))
}
