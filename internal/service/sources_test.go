package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// junkSource is a source that somebody put into a store.
func junkSource(i int) string { return fmt.Sprintf("00000000-junk-4000-8000-%012d", i) }

const junkName = "20991231T235959.999Z-000000000000.json"

// putJunkSources puts files under the names of envelopes of n sources into the store in a folder.
func putJunkSources(t *testing.T, root string, n int) {
	t.Helper()
	for i := range n {
		folder := filepath.Join(root, "snapshots", junkSource(i))
		err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder,
			junkName), []byte("junk"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamesOfSourcesComeFromSnapshotsThatCount: who can write to the store, and has no trusted
// key, makes no name ambiguous, and no command without a source.
func TestNamesOfSourcesComeFromSnapshotsThatCount(t *testing.T) {
	l := newLooker(t)
	name := l.take(nil).Source.Name
	own := l.st
	// The attacker knows the recipient, and signs with a key of his own.
	foreign, err := store.LoadKeys(store.KeyOptions{
		Recipients:     l.service.s.cfg.Locations[0].Store.Recipients,
		SigningKeyFile: filepath.Join(filepath.Dir(keygenInto(t)), store.SigningFile)})
	if err != nil {
		t.Fatal(err)
	}
	l.st, err = store.Open(t.Context(), store.Options{Bucket: directory.New(own.String()),
		Keys: foreign})
	if err != nil {
		t.Fatal(err)
	}
	uid := l.source.UID
	l.source.UID = junkSource(99)
	if forged := l.take(nil); forged.Source.Name != name {
		t.Fatalf("the forged source is named %s", forged.Source.Name)
	}
	putJunkSources(t, own.String(), 3)
	for _, asked := range []string{name, "", uid} {
		if got, err := findSource(t.Context(), own, asked); err != nil || got != uid {
			t.Errorf("source %q: %s, %v, want %s", asked, got, err, uid)
		}
	}
	if _, err := findSource(t.Context(), own, "other"); err == nil ||
		strings.Contains(classify(err).Hint, "junk") ||
		!strings.Contains(classify(err).Hint, name+" ("+uid+")") {
		t.Errorf("source other: %+v", classify(err))
	}
}

// TestManyJunkSourcesAreNoHint: a hint does not list what somebody put there, and says that there
// is more.
func TestManyJunkSourcesAreNoHint(t *testing.T) {
	root := t.TempDir()
	putStructure(t, root, 1)
	putJunkSources(t, root, store.MostSources+5)
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := findSource(t.Context(), st, "prod"); err != nil || got != verifySource {
		t.Errorf("source prod: %s, %v", got, err)
	}
	_, err = findSource(t.Context(), st, "") // one that was not read may count as well
	e := classify(err)
	if err == nil || e.Reason != ReasonAmbiguous || e.Hint != "name one of prod ("+verifySource+
		"), 6 that were not read, which need their UID" {
		t.Errorf("no source: %+v", e)
	}
}

// TestVerifierPassesOverJunkSources: a source without a snapshot that counts is not verified,
// unless the catalog knows it: then somebody may have written over its snapshots.
func TestVerifierPassesOverJunkSources(t *testing.T) {
	root := t.TempDir()
	putStructure(t, root, 1)
	putJunkSources(t, root, 40)
	s := verifyServer(t, root)
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.openStore(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := store.ParseEnvelopeKey("snapshots/" + junkSource(7) +
		"/" + junkName)
	if err == nil {
		err = c.PutSnapshot(t.Context(), catalog.SnapshotRecord{ID: string(key.ID),
			Source: key.Source, SourceName: "known", StoreID: st.ID(), Key: key.String(),
			Time: key.Time, Sequence: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&scheduledRuns{s: s, catalog: c}).Sources(t.Context(), "disk")
	if want := []string{junkSource(7), verifySource}; err != nil || fmt.Sprint(got) !=
		fmt.Sprint(want) {
		t.Errorf("sources %v, %v, want %v", got, err, want)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		state, err := c.VerifyState(t.Context(), "disk/"+verifySource)
		if err == nil && !state.LastSuccess.IsZero() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for i := range 40 {
		_, err := c.VerifyState(t.Context(), "disk/"+junkSource(i))
		if (err == nil) != (i == 7) {
			t.Errorf("the catalog has a record of junk source %d: %v", i, err)
		}
	}
	s.Stop()
	s.Drain()
}
