package main

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// header is the part of a plan in which restores and moves differ.
type header interface {
	// message is the header as the server sent it.
	message() proto.Message
	// kind is the word for what is planned, and the command that runs it.
	kind() string
	// facts adds the snapshot, the management clusters and the options.
	facts(*pairs, *program)
	// does describes what happens to a unit that is not blocked.
	does(*mgmtv1.PlanUnit) string
	// flags returns the flags that ask for the same plan.
	flags() []string
	// check returns an error when a header that was read from a file is incomplete.
	check() error
}

// newHeader returns an empty header of a kind, to decode one into.
func newHeader(kind string) header {
	if kind == kindMove {
		return moveHeader{&mgmtv1.MoveHeader{}}
	}
	return restoreHeader{&mgmtv1.PlanHeader{}}
}

// The kinds of plans, and of the operations that carry them out.
const (
	kindRestore = "restore"
	kindMove    = "move"
)

var errNoSpec = errors.New("no header.spec in it")

type restoreHeader struct{ *mgmtv1.PlanHeader }

func (h restoreHeader) message() proto.Message { return h.PlanHeader }
func (h restoreHeader) kind() string           { return kindRestore }

func (h restoreHeader) facts(l *pairs, p *program) {
	s := h.GetSnapshot()
	l.add("snapshot", s.GetId())
	l.add("taken", p.when(s.GetTime()))
	l.add("source", sourceText(s))
	l.add("target", sideText(h.GetTarget(), h.GetTargetUid()))
	l.add("trust", trustWord(s.GetTrust()))
}

func (h restoreHeader) does(u *mgmtv1.PlanUnit) string {
	switch {
	case u.GetName() == "":
		return "restore"
	case h.GetSpec().GetNoRelease():
		return "restore, not released"
	case u.GetStaysPaused():
		return "restore, stays paused"
	default:
		return "restore and release"
	}
}

func (h restoreHeader) check() error {
	if h.GetSpec() == nil {
		return errNoSpec
	}
	return nil
}

func (h restoreHeader) flags() []string {
	s := h.GetSpec()
	words := specFlags(s)
	if s.GetSnapshot() != "" {
		words = append(words, "--snapshot", s.GetSnapshot())
	}
	if s.GetAt().IsValid() {
		words = append(words, "--at", s.GetAt().AsTime().Format(time.RFC3339))
	}
	if s.GetSourceIsGone() {
		words = append(words, "--source-is-gone")
	}
	if s.GetNoRelease() {
		words = append(words, "--no-release")
	}
	return words
}

type moveHeader struct{ *mgmtv1.MoveHeader }

func (h moveHeader) message() proto.Message { return h.MoveHeader }
func (h moveHeader) kind() string           { return kindMove }

func (h moveHeader) facts(l *pairs, _ *program) {
	l.add("source", sideText(h.GetSource(), h.GetSourceUid()))
	l.add("target", sideText(h.GetTarget(), h.GetTargetUid()))
	if h.GetSpec().GetNoFence() {
		l.add("fence", "none: no ownership record is written")
	}
}

func (h moveHeader) does(u *mgmtv1.PlanUnit) string {
	switch {
	case u.GetName() == "":
		return "copy, and leave on the source what is needed there"
	case u.GetStaysPaused():
		return "move, stays paused as it was"
	default:
		return "move"
	}
}

func (h moveHeader) check() error {
	if h.GetSpec() == nil {
		return errNoSpec
	}
	return nil
}

func (h moveHeader) flags() []string {
	words := specFlags(h.GetSpec())
	if h.GetSpec().GetNoFence() {
		words = append(words, "--no-fence")
	}
	return words
}

// spec is what the specs of restores and moves have in common.
type spec interface {
	GetSource() string
	GetTarget() string
	GetLocation() string
	GetSelection() *mgmtv1.Selection
	GetDropOwners() []string
	GetAcceptDifferences() []string
	GetManagedFields() mgmtv1.ManagedFields
	GetForceCodes() []string
}

// specFlags returns the flags that restores and moves share.
func specFlags(s spec) []string {
	var words []string
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				words = append(words, "--"+flag, v)
			}
		}
	}
	add("source", s.GetSource())
	add("target", s.GetTarget())
	add("location", s.GetLocation())
	add("namespace", s.GetSelection().GetNamespaces()...)
	add("workload", s.GetSelection().GetWorkloads()...)
	add("selector", s.GetSelection().GetSelector())
	add("drop-owner", s.GetDropOwners()...)
	add("accept-difference", s.GetAcceptDifferences()...)
	for _, m := range []managedFields{managedFieldsAll, managedFieldsNone} {
		if m.request() == s.GetManagedFields() {
			add("managed-fields", string(m))
		}
	}
	add("force", s.GetForceCodes()...)
	return words
}

// sideText names a management cluster with its UID, since names may be reused.
func sideText(name, uid string) string { return fmt.Sprintf("%s (%s)", name, uid) }
