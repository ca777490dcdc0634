package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestACopyIsReadWhenItsStoreIsGone copies a store, takes a snapshot, copies once more, and removes
// the store. Then what reads a store reads the copy, and what writes snapshots is refused there.
func TestACopyIsReadWhenItsStoreIsGone(t *testing.T) {
	o := emptyStore(t)
	dir := filepath.Dir(o.URL)
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: o.Recipients,
		SigningKeyFile: o.SigningKeyFile})
	must(t, err)
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(o.URL), Keys: keys})
	must(t, err)
	source := snapshottest.New("prod", 1, 2)
	take := func() string {
		r, err := snapshot.Create(t.Context(), source.Options(st))
		must(t, err)
		source.Change()
		return string(r.Signed.ID)
	}
	alone := " --standalone --catalog " + filepath.Join(dir, "catalog.db")
	copied := filepath.Join(dir, "copy")
	command := "store copy" + alone + " --store " + o.URL + " --to " + copied
	sign := " --signing-key " + o.SigningKeyFile
	run := func(line string, code int, has ...string) {
		t.Helper()
		var stdout, stderr strings.Builder
		got := Run(t.Context(), strings.Fields(line), strings.NewReader(""), &stdout, &stderr)
		if got != code {
			t.Fatalf("mgmtctl %s: exit code %d, want %d\n%s%s", line, got, code, &stdout, &stderr)
		}
		for _, text := range has {
			if !strings.Contains(stdout.String(), text) {
				t.Errorf("mgmtctl %s: no %q in\n%s", line, text, &stdout)
			}
		}
	}

	first := take()
	run(command, 2) // without a key to sign with
	if _, err := os.Stat(copied); err == nil {
		t.Error("a refused run has made the copy")
	}
	run(command+sign, 0, "copied", "1 snapshot\n")
	second := take()
	run(command+sign, 0, "1 snapshot\n", "there before")
	run(command+sign, 0, "0 snapshots\n")
	run("store copy"+alone+" --store "+o.URL+" --to "+o.URL+sign, 2)

	must(t, os.RemoveAll(o.URL))
	trusted := " --trusted-key " + filepath.Join(dir, "keys", "signing.pub")
	of := alone + " --store " + copied + trusted
	identity := " --identity " + filepath.Join(dir, "keys", "identity.txt")
	run("snapshot list"+of, 0, first, second)
	run("snapshot verify "+first+" --level full"+of+identity, 0)
	run("snapshot ls "+second+of+identity, 0, "ConfigMap")
	run("store stats"+of, 0)
	run(command+sign, 10)

	st, err = store.Open(t.Context(), store.Options{Bucket: directory.New(copied), Keys: keys})
	must(t, err)
	if _, err := snapshot.Create(t.Context(), source.Options(st)); err == nil ||
		!strings.Contains(err.Error(), "it is a copy") {
		t.Errorf("a snapshot into the copy: %v", err)
	}
}

// testCopy is a copy of two snapshots, in a state.
func testCopy(state mgmtv1.OperationState) *mgmtv1.Operation {
	op := testPrune(state)
	op.Kind, op.Message = kindCopy, ""
	op.Copy = &mgmtv1.StoreCopy{Location: "offsite", StoreId: "6b1d8f1c", Copied: 2, Present: 40,
		Removed: 7, WrittenKeys: 12, WrittenBytes: 34_000_000}
	return op
}

func TestStoreCopyAsksForOnePlace(t *testing.T) {
	const succeeded = mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED
	f := newFake()
	f.operation, f.events = testCopy(succeeded), testEvents(succeeded)[:2]
	runner{fake: f}.run(t, "store copy --to /c --last 3"+storeFlags).want(t, 0)
	if req := requestOf[*mgmtv1.CopyStoreRequest](t, f); req.GetToLocation() != "/c" ||
		req.GetLast() != 3 {
		t.Errorf("request %v", req)
	}
	for _, line := range []string{"", " --to /c --to-location c", " --to-location c",
		" --to /c --last -1"} {
		runner{fake: newFake()}.run(t, "store copy"+line+storeFlags).want(t, 2)
	}
}

// TestStoreCopyPrintsWhatItDid: the same standalone and through a daemon.
func TestStoreCopyPrintsWhatItDid(t *testing.T) {
	const succeeded = mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED
	for name, format := range map[string]string{"store_copy": "", "store_copy_json": " -o json"} {
		f := newFake()
		d, served := daemonRunner(t)
		for _, f := range []*fake{f, served} {
			f.operation, f.events = testCopy(succeeded), testEvents(succeeded)[:2]
		}
		golden(t, name, runner{fake: f}.run(t, "store copy --to offsite"+format+storeFlags).want(t,
			0).stdout)
		golden(t, name, d.run(t, "store copy --to-location offsite"+format).want(t, 0).stdout)
	}
}

// TestStoreCopySaysHowToGoOn: by the command that it was begun with, or by the locations.
func TestStoreCopySaysHowToGoOn(t *testing.T) {
	const failed = mgmtv1.OperationState_OPERATION_STATE_FAILED
	f := newFake()
	f.operation, f.events = testCopy(failed), testEvents(failed)[:2]
	f.operation.ExitCode, f.operation.Changed = 4, true
	f.operation.Copy.Behind = 1
	d, served := daemonRunner(t)
	served.operation, served.events = f.operation, f.events
	for line, want := range map[string]string{
		"store copy --to /c" + storeFlags: "mgmtctl store copy --to /c ",
		"store copy --location main":      "mgmtctl store copy --location vault --to-location offsite",
	} {
		r := runner{fake: f}
		if !strings.Contains(line, "standalone") {
			r = d
		}
		got := r.run(t, line).want(t, 4)
		if !strings.Contains(got.stderr, want) || !strings.Contains(got.stdout, "not copied:") {
			t.Errorf("%s: no %q in\n%s%s", line, want, got.stderr, got.stdout)
		}
	}
}
