package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// answering is an API server that knows who it is, and nothing else.
func answering(t *testing.T, uid string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch r.URL.Path {
		case "/api/v1/namespaces/kube-system":
			answer = map[string]any{"kind": "Namespace", "apiVersion": "v1",
				"metadata": map[string]any{"name": "kube-system", "uid": uid}}
		case "/version":
			answer = map[string]any{"gitVersion": "v1.36.0"}
		default:
			w.WriteHeader(http.StatusForbidden)
			answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
				"reason": "Forbidden", "code": http.StatusForbidden}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func kubeconfigOf(t *testing.T, name, url string) kube.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n"+
		"  context: {cluster: c, user: u}\nusers:\n- {name: u, user: {}}\nclusters:\n- name: c\n"+
		"  cluster: {server: %q}\n", url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kube.Options{Name: name, KubeconfigFile: file}
}

// TestI1OnlyTheUIDOfTheSourceCountsAsItsAnswer: another management cluster with its name, a port
// that refuses and one that never answers are no answers of it,
// and all are dialled in bounded time.
func TestI1OnlyTheUIDOfTheSourceCountsAsItsAnswer(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing, like a stopped process
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Close() })
	source := object.Side{Name: "a", UID: "uid-a"}
	other, its := answering(t, "uid-x"), answering(t, "uid-a")
	for _, tt := range []struct {
		name    string
		options []kube.Options
		answers bool
		silent  string
	}{
		{"no kubeconfig", nil, false, ""},
		{"another one of its name", []kube.Options{kubeconfigOf(t, "a", other.URL)}, false, ""},
		{"its own under another name", []kube.Options{kubeconfigOf(t, "z", its.URL)}, true, ""},
		{"refused", []kube.Options{kubeconfigOf(t, "a", "http://127.0.0.1:1")}, false, "refused"},
		{"hangs", []kube.Options{kubeconfigOf(t, "b", other.URL), kubeconfigOf(t, "a",
			"http://"+hangs.Addr().String())}, false, "reach management cluster a"},
	} {
		begun := time.Now()
		got := (&dialer{tt.options}).dial(t.Context(), source)[source.UID]
		if got.Answers != tt.answers || tt.silent == "" && got.Silent != "" ||
			!strings.Contains(got.Silent, tt.silent) {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if tt.answers && got.Unread == nil {
			t.Errorf("%s: its Clusters were read", tt.name)
		}
		if took := time.Since(begun); took > 2*dialTimeout {
			t.Errorf("%s: it took %s", tt.name, took)
		}
	}
}

// refusing is an API server that refuses all credentials.
func refusing(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1",
			"status": "Failure", "reason": "Unauthorized", "code": http.StatusUnauthorized})
	}))
	t.Cleanup(server.Close)
	return server
}

// TestI1AnAPIServerThatRefusesTheCredentialsIsASourceThatMayLive: an expired client certificate
// made a source that works look like a dead one. Another management cluster's refusal says nothing.
func TestI1AnAPIServerThatRefusesTheCredentialsIsASourceThatMayLive(t *testing.T) {
	server := refusing(t)
	source := object.Side{Name: "a", UID: "uid-a"}
	for name, refuses := range map[string]bool{"a": true, "b": false, "": true} {
		options := kubeconfigOf(t, "any", server.URL)
		options.Name = name
		d := &dialer{[]kube.Options{options}}
		got := d.dial(t.Context(), source)[source.UID]
		if got.Answers || got.Refuses != refuses {
			t.Errorf("%s: %+v", name, got)
		}
		claim := preflight.SourceClaim{Gone: true}
		err := preflight.Refuses(preflight.Source{Side: source, Dial: got}.Check(claim, time.Now()))
		if (err != nil) != refuses {
			t.Errorf("%s: %v", name, err)
		}
		claim.Force = object.Forced{object.CodeSourceSeenRecently: ""}
		if err = preflight.Refuses(preflight.Source{Side: source, Dial: got}.Check(claim,
			time.Now())); err != nil {
			t.Errorf("%s, overridden: %v", name, err)
		}
	}
}

// TestI1ASourceThatComesBackDuringTheRestoreEndsTheReleases: each later release asks again, and
// nothing is claimed for a unit that is not released.
func TestI1ASourceThatComesBackDuringTheRestoreEndsTheReleases(t *testing.T) {
	f := newOwnedFixture(t, true)
	hook, err := f.beforeRelease(t.Context(), f.journal, f.plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook(t.Context(), ownedUnit); err != nil {
		t.Fatalf("the source is gone: %v", err)
	}
	f.dialer.options = []kube.Options{kubeconfigOf(t, "a", answering(t, "uid-a").URL)}
	hook, err = f.beforeRelease(t.Context(), f.journal, f.plan) // as in a resume
	if err != nil {
		t.Fatal(err)
	}
	next := restore.Unit{Name: "team-a/two", WorkloadID: "workload-2"}
	for _, u := range []restore.Unit{ownedUnit, next} {
		if err := hook(t.Context(), u); !as[*preflight.SourceError](err) {
			t.Errorf("%s: %v", u.Name, err)
		}
	}
	_, err = f.signing.GetOwner(t.Context(), next.WorkloadID)
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the unit was claimed, and is not released: %v", err)
	}
	guard := &sourceGuard{o: f.restoreInputs, plan: f.plan}
	f.dialer.options = nil
	for i, age := range []time.Duration{0, 2 * dialAgain} {
		if i > 0 { // the source is back, and the answer from before is too old to count
			f.dialer.options = []kube.Options{kubeconfigOf(t, "a", answering(t, "uid-a").URL)}
			guard.asked = guard.asked.Add(-age)
		}
		if err := guard.check(t.Context()); (err != nil) != (i > 0) {
			t.Errorf("an answer of %s ago: %v", age, err)
		}
	}
}

// TestI1AFencedSourceIsAskedOnceMoreAfterTheClaim: its fence may have been lifted since it
// answered, by somebody who found no claim. One that did not answer is not dialled for each unit.
func TestI1AFencedSourceIsAskedOnceMoreAfterTheClaim(t *testing.T) {
	f := newOwnedFixture(t, true)
	for name, tt := range map[string]struct {
		answers bool
		asked   time.Duration // from the claim
		refused bool
	}{
		"it answered":                    {true, -time.Second, true},
		"it answered after the claim":    {true, time.Minute, false},
		"it did not answer, seconds ago": {false, -time.Second, false},
	} {
		guard := &sourceGuard{o: f.restoreInputs, plan: f.plan}
		f.dialer.options = nil
		if err := guard.check(t.Context()); err != nil || guard.answers {
			t.Fatalf("%s: it is gone: %v", name, err)
		}
		guard.answers, guard.asked = tt.answers, time.Now().Add(tt.asked)
		f.dialer.options = []kube.Options{kubeconfigOf(t, "a", answering(t, "uid-a").URL)}
		if err := guard.check(t.Context()); err != nil {
			t.Errorf("%s: before the claim: %v", name, err)
		}
		if err := guard.checkAgain(t.Context()); (err != nil) != tt.refused {
			t.Errorf("%s: after the claim: %v", name, err)
		}
	}
}

// TestI1AnOwnerThatAnswersIsNotOverridden: the record names c, the operator overrides that, and c
// is alive.
func TestI1AnOwnerThatAnswersIsNotOverridden(t *testing.T) {
	f := newOwnedFixture(t, true)
	f.restoreElsewhere(t)
	f.plan.Epochs[ownedUnit.WorkloadID] = 1
	f.plan.Spec.Force = object.Forced{object.CodeOwnedElsewhere: "c"}
	release := func() error {
		hook, err := f.beforeRelease(t.Context(), f.journal, f.plan)
		if err != nil {
			t.Fatal(err)
		}
		return hook(t.Context(), ownedUnit)
	}
	f.dialer.options = []kube.Options{kubeconfigOf(t, "c", answering(t, "uid-c").URL)}
	if err := release(); !as[*preflight.SourceError](err) ||
		!strings.Contains(err.Error(), string(object.CodeOwnerAnswers)) {
		t.Errorf("c answers: %v", err)
	}
	f.dialer.options = nil
	f.bucket.onOwner = func() { // its fence is lifted, by somebody who found no claim
		f.dialer.options = []kube.Options{kubeconfigOf(t, "c", answering(t, "uid-c").URL)}
	}
	if err := release(); !as[*preflight.SourceError](err) {
		t.Errorf("c answers after the claim: %v", err)
	}
	f.bucket.onOwner = nil
	if err := release(); !as[*preflight.SourceError](err) {
		t.Errorf("c answers a resume: %v", err)
	}
	f.dialer.options = []kube.Options{kubeconfigOf(t, "c", refusing(t).URL)}
	if err := release(); !as[*preflight.SourceError](err) ||
		!strings.Contains(err.Error(), string(object.CodeOwnerRefuses)) {
		t.Errorf("c refuses the credentials: %v", err)
	}
	f.plan.Spec.Force[object.CodeOwnerRefuses] = ""
	if err := release(); err != nil {
		t.Errorf("c refuses the credentials, which is overridden: %v", err)
	}
	delete(f.plan.Spec.Force, object.CodeOwnerRefuses)
	f.dialer.options = nil
	var age time.Duration
	f.lastSeen = func(_ context.Context, uid string) (time.Time, error) {
		if uid != "uid-c" {
			return time.Time{}, nil
		}
		return time.Now().Add(-age), nil
	}
	age = time.Minute
	if err := release(); !as[*preflight.SourceError](err) ||
		!strings.Contains(err.Error(), string(object.CodeOwnerSeenRecently)) {
		t.Errorf("c does not answer, and its snapshot is a minute old: %v", err)
	}
	if err := release(); !strings.Contains(object.HintOf(err), "roll this operation back") {
		t.Errorf("after its claim: %q", object.HintOf(err))
	}
	f.plan.Spec.Force[object.CodeOwnerSeenRecently] = ""
	if err := release(); err != nil {
		t.Errorf("its snapshot is a minute old, which is overridden: %v", err)
	}
	delete(f.plan.Spec.Force, object.CodeOwnerSeenRecently)
	age = 2 * time.Hour
	if err := release(); err != nil {
		t.Errorf("c does not answer, and its snapshot is two hours old: %v", err)
	}
	f.plan.OwnersSeen = map[string]time.Time{"uid-c": time.Now().Add(-3 * time.Hour)}
	f.plan.Spec.Force[object.CodeOwnerSeenRecently] = ""
	if err := release(); !as[*preflight.SourceError](err) ||
		!strings.Contains(err.Error(), "came back after this operation was planned") {
		t.Errorf("c has made a snapshot since the plan: %v", err)
	}
	f.plan.OwnersSeen["uid-c"] = time.Now() // by its record
	delete(f.plan.Spec.Force, object.CodeOwnerSeenRecently)
	if err := release(); !as[*preflight.SourceError](err) {
		t.Errorf("c was seen now when the plan was made: %v", err)
	}
	f.plan.Spec.Force[object.CodeOwnerSeenRecently] = ""
	if err := release(); err != nil {
		t.Errorf("c was seen now when the plan was made, which is overridden: %v", err)
	}
}

// TestI1OfTwoRestoresOfOneSnapshotIntoTwoTargetsOneReleases: both were planned before either
// claimed, so that only the record decides.
func TestI1OfTwoRestoresOfOneSnapshotIntoTwoTargetsOneReleases(t *testing.T) {
	f := newOwnedFixture(t, true)
	second := *f.plan
	second.Target = object.Side{Name: "c", UID: "uid-c"}
	if err := f.own(t.Context(), f.journal, f.plan, ownedUnit); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Open(t.Context(), filepath.Join(t.TempDir(), "c.db"), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err == nil {
		_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
	}
	if err != nil {
		t.Fatal(err)
	}
	err = f.own(t.Context(), c.Journal(op.ID, catalog.JournalOptions{}), &second, ownedUnit)
	if !as[*ownership.OwnedError](err) {
		t.Errorf("the second one releases, too: %v", err)
	}
}

// TestAPlanWarnsOfARestoreThatWritesNoOwnershipRecord: without a signing key.
func TestAPlanWarnsOfARestoreThatWritesNoOwnershipRecord(t *testing.T) {
	for _, withKey := range []bool{true, false} {
		f := newOwnedFixture(t, withKey)
		findings, err := noFence(t.Context(), f.store)
		if err != nil || len(findings) > 0 == withKey || len(findings) > 0 &&
			(findings[0].Code != object.CodeNoFence || findings[0].Severity != object.Warning) {
			t.Errorf("signing key %v: %v, %v", withKey, findings, err)
		}
	}
}
