package service

import (
	"os"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestMoveNamesTheWayAroundWhatDoesNotAnswer: a rollback can do without the target and without the
// store, and a resume without the source. A resume of a move that is on its way back is a rollback.
func TestMoveNamesTheWayAroundWhatDoesNotAnswer(t *testing.T) {
	const nobody = "http://127.0.0.1:1"
	for _, tt := range []struct {
		name                             string
		silentSource, silentTarget, away bool // what does not answer
		back, rollback                   bool // it was on its way back, and is rolled back
		want                             object.HintKey
		hint                             string
	}{
		{"rollback, no target", false, true, false, false, true, object.HintWithoutTarget,
			"leaves the paused copies on the target"},
		{"resume, no source", true, false, false, false, false, object.HintWithoutSource,
			"releases on the target what was handed over"},
		{"resume of a rollback, no target", false, true, false, true, false, object.HintWithoutTarget, ""},
		{"rollback, no store", false, false, true, false, true, object.HintStoreAway,
			"if this is where the operation began, so that the store is lost, see that nobody goes on with " +
				"this operation on another host"},
		{"rollback, no source", true, false, false, false, true, "", ""},
		{"resume, no target", false, true, false, false, false, "", ""},
		{"resume, no store", false, false, true, false, false, object.HintStoreURL, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts := newMirroredHosts(t)
			s, c, st := hosts.host()
			url := func(silent bool, uid string) string {
				if silent {
					return nobody
				}
				return answering(t, uid).URL
			}
			s.cfg.Sources = []kube.Options{kubeconfigOf(t, "prod", url(tt.silentSource, "a"))}
			s.cfg.Targets = []kube.Options{kubeconfigOf(t, "next", url(tt.silentTarget, "b"))}
			id := newMirroredRun(t, c, st)
			_, err := c.PutPlan(t.Context(), id, strings.NewReader("{}"))
			if err == nil {
				err = c.UpdateOperation(t.Context(), id, func(op *catalog.Operation) { op.Back = tt.back })
			}
			for _, state := range []catalog.State{catalog.Running, catalog.Failed} {
				if err == nil {
					_, err = c.SetState(t.Context(), id, state, catalog.Outcome{})
				}
			}
			folder := strings.TrimPrefix(hosts.location.Store.URL, "file://")
			if err == nil && tt.away {
				err = os.Rename(folder, folder+"-away")
			}
			if err != nil {
				t.Fatal(err)
			}
			o := &operationService{s: s}
			if tt.rollback {
				_, err = o.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: string(id)})
			} else {
				_, err = o.ResumeOperation(t.Context(), &mgmtv1.ResumeOperationRequest{Id: string(id)})
			}
			e := classify(err)
			want := ReasonUnreachable
			if tt.away {
				want = ReasonStoreMissing
			}
			if e.Reason != want || e.HintKey != tt.want || !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("%s: %s, hint %q with the key %q, want %q with %q", e.Reason, e.Message, e.Hint,
					e.HintKey, tt.hint, tt.want)
			}
			if tt.want != "" && !strings.HasPrefix(e.Hint, "check ") {
				t.Errorf("the hint does not say first how to make it answer: %q", e.Hint)
			}
		})
	}
}

// TestNoWayAroundWhereThereIsNone: of a restore, of a run that does without already, and where the
// error has a smaller override.
func TestNoWayAroundWhereThereIsNone(t *testing.T) {
	move := catalog.Operation{Kind: catalog.KindMove}
	silent := &sideError{targetSide, &kube.UnreachableError{Name: "next"}}
	for _, tt := range []struct {
		name string
		how  resumption
		op   catalog.Operation
		err  error
	}{
		{"a restore", resumption{}, catalog.Operation{Kind: catalog.KindRestore}, silent},
		{"an operation that no catalog has", resumption{}, catalog.Operation{}, silent},
		{"without the target already", resumption{withoutTarget: true}, move, silent},
		{"another error of the target", resumption{}, move, &sideError{targetSide, os.ErrPermission}},
		{"the mirror can be given up", resumption{}, move, &Error{Reason: ReasonStoreDenied,
			HintKey: object.HintGiveUpMirror}},
	} {
		if got := tt.how.wayAround(tt.op, true, tt.err); got != tt.err {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// TestRollbackSaysWhatARollbackCanOverride: not what a resume can.
func TestRollbackSaysWhatARollbackCanOverride(t *testing.T) {
	s, _, _ := newMirroredHosts(t).host()
	_, err := (&operationService{s: s}).RollbackOperation(t.Context(),
		&mgmtv1.RollbackOperationRequest{Id: latest, ForceCodes: []string{"store-away"}})
	const want = `override "store-away": a rollback can override no-mirror`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestLatestThatIsNotThereNamesTheList: the operation may be that of another host.
func TestLatestThatIsNotThereNamesTheList(t *testing.T) {
	s, c, _ := newMirroredHosts(t).host()
	if _, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindSnapshot}); err !=
		nil {
		t.Fatal(err)
	}
	o := &operationService{s: s}
	for verb, call := range map[string]func() error{
		"show": func() error {
			_, err := o.GetOperation(t.Context(), &mgmtv1.GetOperationRequest{Id: latest,
				Kinds: []string{"move", "restore"}})
			return err
		},
		"resume": func() error {
			_, err := o.ResumeOperation(t.Context(), &mgmtv1.ResumeOperationRequest{Id: latest})
			return err
		},
		"rollback": func() error {
			_, err := o.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: latest})
			return err
		},
		"accept": func() error {
			_, err := o.AcceptUnit(t.Context(), &mgmtv1.AcceptUnitRequest{Id: latest, Unit: "a/b"})
			return err
		},
	} {
		e := classify(call())
		if e.Reason != ReasonNotFound || e.HintKey != object.HintOperations ||
			!strings.Contains(e.Hint, "operations of other hosts are named by their ID") {
			t.Errorf("%s: %+v", verb, e)
		}
	}
}
