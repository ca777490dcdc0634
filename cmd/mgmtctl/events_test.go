package main

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestAWatchGoesOnWhenItsConnectionEnds: a daemon ends each connection within an hour, and a
// restore may take longer.
func TestAWatchGoesOnWhenItsConnectionEnds(t *testing.T) {
	for _, line := range []string{"operation watch latest", "operation watch latest -o json",
		"restore run --yes --target new"} {
		whole, f := daemonRunner(t)
		f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
		want := whole.run(t, line).want(t, 4)
		broken, f := daemonRunner(t)
		f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
		f.breakAfter = 6
		got := broken.run(t, line).want(t, 4)
		if got.stdout != want.stdout || got.stderr != want.stderr {
			t.Errorf("%s: got\n%s%s\nwant\n%s%s", line, got.stdout, got.stderr, want.stdout, want.stderr)
		}
		streams := 0
		for _, req := range f.requests {
			if r, ok := req.(*mgmtv1.WatchOperationRequest); ok {
				if streams++; (r.GetAfterSeq() > 0) != (streams > 1) {
					t.Errorf("%s: stream %d begins after event %d", line, streams, r.GetAfterSeq())
				}
			}
		}
		if streams < 2 {
			t.Errorf("%s: %d streams", line, streams)
		}
	}
}

// TestAWatchEndsWithAnErrorOfTheServer: only the connection is tried again.
func TestAWatchEndsWithAnErrorOfTheServer(t *testing.T) {
	r, f := daemonRunner(t)
	f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)[:2]
	f.watchErr = &service.Error{Reason: service.ReasonStoreUnreachable, Message: "no answer"}
	r.run(t, "operation watch latest").want(t, 10).stderrHas(t, "no answer")
	f.watchErr = &service.Error{Reason: service.ReasonDenied, Message: "no role"}
	r.run(t, "operation watch latest").want(t, 1).stderrHas(t, "no role")
	if len(f.requests) != 4 { // two of each: the operation, and its events
		t.Errorf("%d requests", len(f.requests))
	}
}
