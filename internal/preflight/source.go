package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Dial is the answer of a management cluster that may be dead. Only an API server with its
// kube-system UID counts as an answer of it: a timeout, a TLS error and another cluster at its
// address do not.
type Dial struct {
	// Answers: it answered.
	Answers bool
	// Silent says, for a message, how it was dialled without an answer; empty when no kubeconfig is
	// known that could be its own.
	Silent string
	// Refuses: an API server at its address refuses the credentials, so that it cannot be known
	// whether it is the one.
	Refuses bool
	// Clusters are its Clusters, by unit. Unread says why they could not be listed.
	Clusters map[string]ClusterState
	Unread   error
}

// ClusterState is what decides whether a management cluster reconciles a workload cluster.
type ClusterState struct {
	Paused bool
	Fenced bool // paused by a fence
	// Lifting: that fence is being lifted, so that it does not count.
	Lifting bool
	// Unacknowledged says why the pause is not acknowledged at the Cluster's current generation.
	Unacknowledged string
}

// Reconciles reports whether the management cluster answers and may reconcile a unit. One that
// refuses the credentials may.
func (d Dial) Reconciles(unit string) bool {
	state, there := d.Clusters[unit]
	return d.Refuses || d.Answers && (d.Unread != nil || there && (!state.Paused || state.Lifting))
}

// Source is the evidence of whether the source of a restore is dead (invariant I1).
type Source struct {
	Side object.Side
	Dial Dial
	// Seen is when it was last known to live, and SeenBy is what shows it. Interval is that of the
	// schedule of its snapshots, 0 for snapshots that were taken by hand.
	Seen     time.Time
	SeenBy   string
	Interval time.Duration
	// Planned is Seen of the plan that is carried out; zero in the plan itself.
	Planned time.Time
}

// SourceClaim is what an operator vouches for, and which units are released.
type SourceClaim struct {
	Units     []string
	Gone      bool // the operator's word that no controller of the source runs
	NoRelease bool // nothing is released, so that no proof is needed
	Force     object.Forced
}

// The age below which a management cluster was seen recently: three intervals of the schedule of
// its snapshots, within these bounds. A cut network of a few minutes must not look like a dead
// source, and after an hour without a snapshot a daily schedule says nothing.
const (
	recentLeast = 15 * time.Minute
	recentMost  = time.Hour
)

func recent(interval time.Duration) time.Duration {
	return min(max(recentLeast, 3*interval), recentMost)
}

// Check returns the findings about the source. An error among them forbids the release.
func (s Source) Check(c SourceClaim, now time.Time) []object.Finding {
	var findings []object.Finding
	if s.Dial.Answers {
		findings = s.answers(c)
	} else {
		findings = s.silent(c, now)
	}
	for i, f := range findings {
		if f = c.Force.Override(f); c.NoRelease && f.Severity >= object.Error {
			f.Severity = object.Warning
		}
		findings[i] = f
	}
	return findings
}

// Refuses returns the error of findings that forbid the release, or nil.
func Refuses(findings []object.Finding) error {
	for _, f := range findings {
		if f.Severity >= object.Error {
			return &SourceError{f}
		}
	}
	return nil
}

// SourceError says that the source of a restore may reconcile what would be released.
type SourceError struct{ Finding object.Finding }

func (e *SourceError) Error() string {
	return string(e.Finding.Code) + ": " + e.Finding.Message
}

// Hint says what to do next.
func (e *SourceError) Hint() string { return e.Finding.Hint }

// name names the source as messages do.
func (s Source) name() string { return fmt.Sprintf("%s (%s)", s.Side.Name, s.Side.UID) }

// answers returns the findings about a source that answers.
func (s Source) answers(c SourceClaim) []object.Finding {
	alive := object.Finding{Severity: object.Fatal, Code: object.CodeSourceAnswers,
		Hint: "fence the workload clusters there, or shut the source down for good; while both live, a " +
			"move is the safe way"}
	if s.Dial.Unread != nil {
		alive.Message = fmt.Sprintf("management cluster %s answers, and its Clusters could not be read: "+
			"%v", s.name(), s.Dial.Unread)
		return []object.Finding{alive}
	}
	var unfenced []string
	var findings []object.Finding
	for _, unit := range slices.Sorted(slices.Values(c.Units)) {
		state, there := s.Dial.Clusters[unit]
		switch {
		case !there:
		case !state.Paused || !state.Fenced || state.Lifting:
			unfenced = append(unfenced, unit)
		case state.Unacknowledged != "":
			findings = append(findings, object.Finding{Severity: object.Error, Unit: unit,
				Code: object.CodeFenceUnacknowledged,
				Message: "it is fenced on management cluster " + s.Side.Name + ", and no controller there " +
					"acknowledged the pause: " + state.Unacknowledged,
				Hint: "make sure that no controller of the source runs"})
		}
	}
	if len(unfenced) > 0 {
		alive.Message = fmt.Sprintf("management cluster %s answers, and %d of the selected Clusters are "+
			"not fenced there: %s", s.name(), len(unfenced), some(unfenced))
		return append(findings, alive)
	}
	return append(findings, object.Finding{Severity: object.Warning, Code: object.CodeSourceMayReturn,
		Message: fmt.Sprintf("management cluster %s answers; the selected Clusters are fenced there, "+
			"and both reconcile the same infrastructure once somebody ends that", s.name()),
		Hint: "only revoking its infrastructure credentials prevents that"})
}

// some lists the first of many names.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// silent returns the findings about a source that does not answer.
func (s Source) silent(c SourceClaim, now time.Time) []object.Finding {
	age := max(0, now.Sub(s.Seen)).Round(time.Second)
	dialled := "it was not dialled, because no kubeconfig for it is known"
	if s.Dial.Silent != "" {
		dialled = "it was dialled and did not answer: " + s.Dial.Silent
	}
	seen := "nothing shows when management cluster " + s.name() + " was last alive"
	if !s.Seen.IsZero() {
		seen = fmt.Sprintf("management cluster %s was last seen %s ago, at %s (%s)", s.name(), age,
			s.Seen.UTC().Format("2006-01-02 15:04:05Z"), s.SeenBy)
	}
	findings := []object.Finding{{Severity: object.Info, Code: object.CodeSourceLastSeen,
		Message: seen + "; " + dialled}}
	if s.Dial.Silent == "" {
		findings[0].Severity = object.Warning
		findings[0].Hint = "name its kubeconfig, so that it is dialled before the release"
	}
	if !c.NoRelease && !c.Gone {
		return append(findings, object.Finding{Severity: object.Fatal, Code: object.CodeSourceNotGone,
			Message: fmt.Sprintf("nothing proves that management cluster %s is gone; two that reconcile "+
				"one workload cluster destroy it", s.Side.Name),
			Hint: "make sure that its controllers do not run, and confirm it; or restore " +
				"without the release, which leaves everything paused"})
	}
	if !c.NoRelease && s.Dial.Refuses {
		findings = append(findings, object.Finding{Severity: object.Fatal,
			Code: object.CodeSourceSeenRecently,
			Message: fmt.Sprintf("an API server at the address of management cluster %s answers and "+
				"refuses the credentials: it may well be at work", s.Side.Name),
			Hint: "use credentials that it accepts, or make sure that its controllers do not run"})
	}
	if !c.NoRelease && !s.Seen.IsZero() && age < recent(s.Interval) {
		findings = append(findings, object.Finding{Severity: object.Fatal,
			Code: object.CodeSourceSeenRecently,
			Message: fmt.Sprintf("the source was seen %s ago (%s): below %s it may well be at work", age,
				s.SeenBy, recent(s.Interval)),
			Hint: "make sure that its controllers do not run"})
	}
	if !c.NoRelease && !s.Planned.IsZero() && s.Seen.After(s.Planned) {
		findings = append(findings, object.Finding{Severity: object.Fatal,
			Code: object.CodeSourceAnswers,
			Message: fmt.Sprintf("management cluster %s came back after this restore was planned: it was "+
				"seen at %s (%s)", s.name(), s.Seen.UTC().Format("2006-01-02 15:04:05Z"), s.SeenBy),
			Hint: "fence the workload clusters there or shut it down for good, then plan a new restore: " +
				"it adopts what is there"})
	}
	return append(findings, object.Finding{Severity: object.Warning, Code: object.CodeSourceMayReturn,
		Message: fmt.Sprintf("if management cluster %s comes back, both reconcile the same "+
			"infrastructure, until somebody pauses the Clusters there", s.name()),
		Hint: "only revoking its infrastructure credentials prevents that"})
}
