package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// TestWhatNobodyTrustedWroteStopsNoWriterAndNoReader: any file under the name of an envelope is
// passed over, whatever it says, and whatever time its name has.
func TestWhatNobodyTrustedWroteStopsNoWriterAndNoReader(t *testing.T) {
	s, root := newTestStore(t, false)
	first := mustWriteSnapshot(t, s, 1, nil)
	good := mustWriteSnapshot(t, s, 2, &first)
	other, otherRoot := newTestStore(t, false)
	foreign := mustWriteSnapshot(t, other, 7, nil)
	unknown := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, testKeys(t))})
	e := testEnvelope(good.Tree, 9)
	e.Time = testTime.AddDate(10, 0, 0)
	if _, err := unknown.PutEnvelope(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(filepath.Join(otherRoot, foreign.Key().String()))
	if err != nil {
		t.Fatal(err)
	}
	for i, junk := range []string{`{"payload":"{\"format\":2}","signature":""}`, "x", string(copied),
		`{"payload":"{}","signature":""}`} {
		name := fmt.Sprintf("99991231T235959.99%dZ-%012d.json", i, i)
		path := filepath.Join(root, layout.EnvelopeFolder, testSource, name)
		if err := os.WriteFile(path, []byte(junk), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newest, passed, err := s.Newest(t.Context(), testSource, Which{})
	if err != nil || newest == nil || newest.ID != good.ID || len(passed) != 5 {
		t.Fatalf("newest %v, passed over %v, %v", newest, passed, err)
	}
	found, err := s.Find(t.Context(), testSource, Latest, "")
	if err != nil || found.Key != good.Key() || len(found.PassedOver) != 5 {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestATrustedEnvelopeOfANewerFormatStopsAWriter: a newer version works on this store, and what it
// wrote cannot be followed.
func TestATrustedEnvelopeOfANewerFormatStopsAWriter(t *testing.T) {
	s, root := newTestStore(t, false)
	first := mustWriteSnapshot(t, s, 1, nil)
	key := first.Key()
	key.Time, key.ID = key.Time.Add(time.Hour), NewSnapshotID()
	data, err := s.signer().Encode(key.String(), &struct {
		Envelope
		Format int `json:"format"`
	}{Envelope: first.Envelope, Format: 2}, maxEnvelope)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, key.String()), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Newest(t.Context(), testSource, Which{})
	if format, ok := errors.AsType[*FormatError](err); !ok || !format.Trusted {
		t.Errorf("error %v", err)
	}
}

// TestTheNewestGoesByItsNumber: the clock of a writer decides nothing, and of two snapshots with
// one number the storage's clock does.
func TestTheNewestGoesByItsNumber(t *testing.T) {
	s, root := newTestStore(t, false)
	put := func(sequence int64, at, received time.Duration, change func(*Envelope)) EnvelopeKey {
		t.Helper()
		e := testEnvelope(mustWriteSnapshot(t, s, 1000+sequence*10+int64(at/time.Minute), nil).Tree,
			sequence)
		e.Source.UID, e.Time = "uid", testTime.Add(at)
		if change != nil {
			change(&e)
		}
		signed, err := s.PutEnvelope(t.Context(), e)
		if err == nil {
			when := testTime.Add(received)
			err = os.Chtimes(filepath.Join(root, signed.Key().String()), when, when)
		}
		if err != nil {
			t.Fatal(err)
		}
		return signed.Key()
	}
	team := ScopeOf("uid", []string{"team-a"}, "", "team-a")
	inTeam := func(e *Envelope) { e.Scope, e.Partial = &team, true }
	put(1, 10*365*24*time.Hour, 0, nil) // by a clock that was ahead
	atNoon := put(2, time.Hour, time.Hour, nil)
	put(3, 3*time.Hour, 2*time.Hour, nil)
	late := put(3, 2*time.Hour, 3*time.Hour, nil) // another writer, which was slow
	partial := put(4, 4*time.Hour, 4*time.Hour, inTeam)
	for i := range 40 {
		partial = put(int64(5+i), time.Duration(5+i)*time.Hour, time.Duration(5+i)*time.Hour, inTeam)
	}
	of := OperationScope("uid", "move-1")
	inFlight := put(60, 60*time.Hour, 60*time.Hour,
		func(e *Envelope) { e.Scope, e.Partial = &of, true })
	at := testTime.Add(time.Hour).Format(time.RFC3339)
	for _, tt := range []struct {
		ref, scope string
		want       EnvelopeKey
	}{{Latest, "", late}, {Latest, ScopeWhole, late}, {Latest, "team-a", partial},
		{Latest, ScopeAny, partial}, {Latest, "move-1", inFlight},
		{Latest, team.ID[:8], partial}, {testTime.Add(time.Hour + time.Second).Format(time.RFC3339), "",
			atNoon}} {
		found, err := s.Find(t.Context(), "uid", tt.ref, tt.scope)
		if err != nil || found.Key != tt.want {
			t.Errorf("%s of %q: %v, %v, want %v", tt.ref, tt.scope, found.Key, err, tt.want)
		}
	}
	_, err := s.Find(t.Context(), "uid", at, "team-a")
	if lookup, ok := errors.AsType[*LookupError](err); !ok ||
		!strings.Contains(lookup.Error(), "none of scope") || lookup.Hint() == "" {
		t.Errorf("before the first of a scope: %v", err)
	}
}
