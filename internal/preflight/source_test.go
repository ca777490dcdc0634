package preflight

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

var (
	sourceNow = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	fencedAck = ClusterState{Paused: true, Fenced: true}
	fencedNot = ClusterState{Paused: true, Fenced: true, Unacknowledged: "Paused is False"}
)

// TestI1ASourceThatAnswersForbidsTheRelease: the operator's word does not help, only a fence of
// every selected Cluster does.
func TestI1ASourceThatAnswersForbidsTheRelease(t *testing.T) {
	answers := func(one, two ClusterState) Dial {
		return Dial{Answers: true, Clusters: map[string]ClusterState{"n/one": one, "n/two": two,
			"n/other": {}}}
	}
	none := Dial{Answers: true, Clusters: map[string]ClusterState{"n/other": {}}}
	for _, tt := range []struct {
		name    string
		dial    Dial
		force   object.Forced
		refused string // of the message
	}{
		{"at work", answers(ClusterState{}, ClusterState{}), nil, "2 of the selected Clusters are not " +
			"fenced there: n/one, n/two"},
		{"one is fenced", answers(fencedAck, ClusterState{}), nil, "fenced there: n/two"},
		{"paused by somebody, not fenced", answers(fencedAck, ClusterState{Paused: true}), nil,
			"fenced there: n/two"},
		{"being lifted", answers(fencedAck, ClusterState{Paused: true, Fenced: true, Lifting: true}), nil,
			"fenced there: n/two"},
		{"the mark alone", answers(fencedAck, ClusterState{Fenced: true}), nil, "fenced there: n/two"},
		{"all are fenced", answers(fencedAck, fencedAck), nil, ""},
		{"one does not acknowledge", answers(fencedAck, fencedNot), nil,
			"no controller there acknowledged the pause: Paused is False"},
		{"its controllers are dead", answers(fencedAck, fencedNot),
			object.Forced{object.CodeFenceUnacknowledged: ""}, ""},
		{"forced for another reason", answers(fencedAck, fencedNot),
			object.Forced{object.CodeSourceSeenRecently: ""}, "acknowledged"},
		{"a force that the registry does not allow", answers(fencedAck, ClusterState{}),
			object.Forced{object.CodeSourceAnswers: ""}, "fenced there: n/two"},
		{"the Clusters are gone there", none, nil, ""},
		{"its Clusters cannot be read", Dial{Answers: true, Unread: errors.New("forbidden")}, nil,
			"could not be read: forbidden"},
	} {
		s := Source{Side: object.Side{Name: "a", UID: "ua"}, Dial: tt.dial}
		claim := SourceClaim{Units: []string{"n/two", "n/one"}, Gone: true, Force: tt.force}
		err := Refuses(s.Check(claim, sourceNow))
		if tt.refused == "" && err != nil || tt.refused != "" && (err == nil ||
			!strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%s: %v", tt.name, err)
		}
		claim.NoRelease = true
		if err := Refuses(s.Check(claim, sourceNow)); err != nil {
			t.Errorf("%s, without the release: %v", tt.name, err)
		}
	}
}

// TestI1ASilentSourceNeedsTheWordOfTheOperatorAndTime: below 15 minutes, or three intervals of the
// schedule up to an hour, the word is not enough.
func TestI1ASilentSourceNeedsTheWordOfTheOperatorAndTime(t *testing.T) {
	recently := object.Forced{object.CodeSourceSeenRecently: ""}
	for _, tt := range []struct {
		name     string
		gone     bool
		force    object.Forced
		age      time.Duration
		interval time.Duration
		want     object.Code // that refuses
	}{
		{"nobody vouches", false, nil, 48 * time.Hour, 0, object.CodeSourceNotGone},
		{"nobody vouches, forced", false, recently, time.Minute, 0, object.CodeSourceNotGone},
		{"by hand, 14 minutes", true, nil, 14 * time.Minute, 0, object.CodeSourceSeenRecently},
		{"by hand, 15 minutes", true, nil, 15 * time.Minute, 0, ""},
		{"every 30 s, 2 minutes", true, nil, 2 * time.Minute, 30 * time.Second,
			object.CodeSourceSeenRecently},
		{"every 10 minutes, 29", true, nil, 29 * time.Minute, 10 * time.Minute,
			object.CodeSourceSeenRecently},
		{"every 10 minutes, 30", true, nil, 30 * time.Minute, 10 * time.Minute, ""},
		{"daily, 59 minutes", true, nil, 59 * time.Minute, 24 * time.Hour,
			object.CodeSourceSeenRecently},
		{"daily, an hour", true, nil, time.Hour, 24 * time.Hour, ""},
		{"forced", true, recently, time.Minute, 0, ""},
		{"of a clock that is ahead", true, nil, -time.Hour, 0, object.CodeSourceSeenRecently},
	} {
		s := Source{Side: object.Side{Name: "a", UID: "ua"}, Seen: sourceNow.Add(-tt.age),
			SeenBy: "its newest snapshot", Interval: tt.interval}
		findings := s.Check(SourceClaim{Gone: tt.gone, Force: tt.force}, sourceNow)
		err := Refuses(findings)
		refused, _ := errors.AsType[*SourceError](err)
		if tt.want == "" && err != nil || tt.want != "" && (refused == nil ||
			refused.Finding.Code != tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if !slices.ContainsFunc(findings, func(f object.Finding) bool {
			return f.Code == object.CodeSourceLastSeen && strings.Contains(f.Message, "newest snapshot")
		}) {
			t.Errorf("%s: the plan does not say when it was last seen: %v", tt.name, findings)
		}
		if err == nil && findings[len(findings)-1].Code != object.CodeSourceMayReturn {
			t.Errorf("%s: the plan does not say what only revoking credentials prevents: %v", tt.name,
				findings)
		}
	}
}

// TestI1AnOverriddenOwnerMayBeAtWork: its snapshots go on when only this host is cut off from it.
func TestI1AnOverriddenOwnerMayBeAtWork(t *testing.T) {
	recent := []object.Code{object.CodeOwnerSeenRecently}
	refuses, answers := []object.Code{object.CodeOwnerRefuses}, []object.Code{object.CodeOwnerAnswers}
	atWork := map[string]ClusterState{"n/w": {}}
	paused := map[string]ClusterState{"n/w": {Paused: true}}
	for name, tt := range map[string]struct {
		dial     Dial
		age      time.Duration // since it was seen; 0 means that nothing shows when
		interval time.Duration
		want     []object.Code
	}{
		"silent, not seen":             {Dial{}, 0, 0, nil},
		"silent, 14 minutes":           {Dial{}, 14 * time.Minute, 0, recent},
		"silent, 15 minutes":           {Dial{}, 15 * time.Minute, 0, nil},
		"silent, every 10 minutes, 29": {Dial{}, 29 * time.Minute, 10 * time.Minute, recent},
		"silent, every 10 minutes, 30": {Dial{}, 30 * time.Minute, 10 * time.Minute, nil},
		"refuses":                      {Dial{Refuses: true}, time.Hour, 0, refuses},
		"refuses, a minute":            {Dial{Refuses: true}, time.Minute, 0, append(refuses, recent...)},
		"at work":                      {Dial{Answers: true, Clusters: atWork}, 0, 0, answers},
		"paused there":                 {Dial{Answers: true, Clusters: paused}, time.Minute, 0, nil},
	} {
		o := Overridden{Owner: object.Side{Name: "c", UID: "uc"}, Dial: tt.dial, Interval: tt.interval}
		if tt.age > 0 {
			o.Seen = sourceNow.Add(-tt.age)
		}
		var got []object.Code
		for _, f := range o.AtWork("n/w", sourceNow) {
			got = append(got, f.Code)
			if f.Severity != object.Error || f.Unit != "n/w" || f.Hint == "" ||
				!strings.Contains(f.Message, "management cluster c (uc), which owns it,") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestI1AnOwnerThatCameBackAfterThePlanIsNotOverridden, whatever the operator vouched for then.
func TestI1AnOwnerThatCameBackAfterThePlanIsNotOverridden(t *testing.T) {
	for name, planned := range map[string]time.Time{"seen before": sourceNow.Add(-3 * time.Hour),
		"never seen before": {}} {
		o := Overridden{Seen: planned, Planned: &planned}
		if f := o.AtWork("n/w", sourceNow); len(f) > 0 {
			t.Errorf("%s: as planned: %v", name, f)
		}
		o.Seen = sourceNow.Add(-2 * time.Hour)
		if f := o.AtWork("n/w", sourceNow); len(f) != 1 || f[0].Code != object.CodeOwnerAnswers {
			t.Errorf("%s: seen after the plan: %v", name, f)
		}
	}
}

// TestOnlyATrustedRecordOfAnotherIsOverridden: also where an old record was put back, which the
// operator has answered for.
func TestOnlyATrustedRecordOfAnotherIsOverridden(t *testing.T) {
	c, source := object.Side{Name: "c", UID: "uc"}, object.Side{Name: "c", UID: "ua"}
	force := object.Forced{object.CodeOwnedElsewhere: "c", object.CodeEpochWentBack: ""}
	for name, tt := range map[string]struct {
		record ownership.Record
		force  object.Forced
		want   object.Side
	}{
		"overridden":        {ownership.Record{By: c, Epoch: 2, Trusted: true}, force, c},
		"went back":         {ownership.Record{By: c, Epoch: 2, Seen: 3, Trusted: true}, force, c},
		"not overridden":    {ownership.Record{By: c, Epoch: 2, Trusted: true}, nil, object.Side{}},
		"anybody's":         {ownership.Record{By: c, Epoch: 2}, force, object.Side{}},
		"of the source":     {ownership.Record{By: source, Epoch: 2, Trusted: true}, force, object.Side{}},
		"there is none":     {ownership.Record{}, force, object.Side{}},
		"cannot be decoded": {ownership.Record{Damaged: errors.New("damaged"), By: c}, force, object.Side{}},
	} {
		o := Owners{Records: map[string]ownership.Record{"w": tt.record}, Force: tt.force,
			Expected: []string{"ua"}}
		if got := o.Overrides("w"); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestI1ASourceThatWasSeenAfterThePlanForbidsTheRelease: the operator vouched and forced for what
// the plan showed.
func TestI1ASourceThatWasSeenAfterThePlanForbidsTheRelease(t *testing.T) {
	s := Source{Planned: sourceNow.Add(-3 * time.Hour), Seen: sourceNow.Add(-3 * time.Hour)}
	claim := SourceClaim{Gone: true, Force: object.Forced{object.CodeSourceSeenRecently: ""}}
	if err := Refuses(s.Check(claim, sourceNow)); err != nil {
		t.Errorf("as planned: %v", err)
	}
	s.Seen = sourceNow.Add(-2 * time.Hour)
	if err := Refuses(s.Check(claim, sourceNow)); err == nil {
		t.Error("seen after the plan, and not refused")
	}
}

// TestASourceThatDoesNotAnswerIsSaidInThePlan: a timeout is no answer, but no secret either.
func TestASourceThatDoesNotAnswerIsSaidInThePlan(t *testing.T) {
	for silent, want := range map[string]struct {
		severity object.Severity
		text     string
	}{
		"":                  {object.Warning, "no kubeconfig for it is known"},
		"a: TLS: no answer": {object.Info, "did not answer: a: TLS: no answer"},
	} {
		findings := Source{Dial: Dial{Silent: silent}}.Check(SourceClaim{Gone: true}, sourceNow)
		if f := findings[0]; f.Code != object.CodeSourceLastSeen || f.Severity != want.severity ||
			!strings.Contains(f.Message, want.text) {
			t.Errorf("%q: %v", silent, f)
		}
	}
}
