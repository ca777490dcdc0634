package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// testCheck is a good result of a level, some hours after the snapshot.
func testVerification(level VerifyLevel, hours int) Verification {
	return Verification{Level: level, Time: testTime.Add(time.Duration(hours) * time.Hour),
		Writer: "mgmtd test", Outcome: OutcomeOK, Keys: 2, Bytes: 300}
}

func damagedVerification(level VerifyLevel, hours int) Verification {
	c := testVerification(level, hours)
	c.Outcome, c.Findings, c.First = OutcomeDamaged, 1,
		[]VerificationFinding{{Code: "missing", Key: "packs/ab/x"}}
	return c
}

func mustPutVerification(t *testing.T, s *Store, e Signed, c Verification) SignedVerification {
	t.Helper()
	signed, err := s.PutVerification(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// checkFiles gives the keys of all checks in a store.
func checkFiles(t *testing.T, root string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "checks", "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		files[i] = strings.TrimPrefix(f, root+"/")
	}
	return files
}

func TestVerificationIsReadAsItWasWritten(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, root string) {
		e := mustWriteSnapshot(t, s, 1, nil)
		put := mustPutVerification(t, s, e, damagedVerification(LevelFull, 1))
		want := damagedVerification(LevelFull, 1)
		want.Format, want.StoreID, want.ID, want.Key = Format, s.ID(), put.ID, put.Key
		want.Snapshot = VerifiedSnapshot{Source: testSource, SourceName: "prod", Time: e.Time, ID: e.ID,
			SHA256: e.SHA256}
		trust := Trusted
		if !s.Encrypted() {
			trust = Unsigned
		}
		if !reflect.DeepEqual(put.Verification, want) || put.Trust != trust {
			t.Errorf("put gives %+v, want %+v", put, want)
		}
		if files := checkFiles(t, root); !slices.Equal(files, []string{put.Key}) ||
			!strings.HasPrefix(put.Key, "checks/"+testSource+"/20260102T030505.678Z-"+string(e.ID)+
				"/20260102T040405.678Z-") {
			t.Errorf("files: %v, key %s", files, put.Key)
		}
		list, damaged, err := s.Verifications(t.Context(), e.Key())
		if err != nil || len(damaged) > 0 || len(list) != 1 || !reflect.DeepEqual(list[0], put) {
			t.Errorf("read: %+v, %v, %v", list, damaged, err)
		}
		if c, ok := s.DecidingVerification(e, list); !ok || c.Key != put.Key {
			t.Errorf("verdict: %+v, %v", c, ok)
		}
		if _, _, err := s.Verified(t.Context(), testSource); !errors.Is(err, ErrNotFound) {
			t.Errorf("verified: %v, want ErrNotFound", err)
		}
		if _, err := s.Snapshots(t.Context(), ""); err != nil {
			t.Error(err)
		}
	})
}

func TestVerificationThatBreaksTheFormatIsRefused(t *testing.T) {
	s, root := newTestStore(t, false)
	e := mustWriteSnapshot(t, s, 1, nil)
	for name, change := range map[string]func(*Verification){
		"unknown level":             func(c *Verification) { c.Level = "deep" },
		"unknown result":            func(c *Verification) { c.Outcome = "fine" },
		"damaged without a finding": func(c *Verification) { c.Outcome = OutcomeDamaged },
		"negative count":            func(c *Verification) { c.Objects = -1 },
		"finding with an escape": func(c *Verification) {
			c.First = []VerificationFinding{{Code: "x",
				Key: "\x1b[2J"}}
		},
		"writer with a line": func(c *Verification) { c.Writer = "a\nb" },
		"time that no key can carry": func(c *Verification) {
			c.Time = time.Date(12026, 1, 1, 0, 0, 0, 0,
				time.UTC)
		},
	} {
		c := testVerification(LevelStructure, 1)
		change(&c)
		if _, err := s.PutVerification(t.Context(), e, c); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	// Without a signing key it would count for nobody.
	reader := mustOpen(t, Options{Bucket: directory.New(root)})
	if _, err := reader.PutVerification(t.Context(), e, testVerification(LevelStructure,
		1)); err == nil ||
		reader.CanRecordVerifications() {
		t.Errorf("without a signing key: %v", err)
	}
	if files := checkFiles(t, root); len(files) > 0 {
		t.Errorf("left %v", files)
	}
	// Many findings: a few are named.
	c := damagedVerification(LevelStructure, 1)
	c.Findings, c.First = 50, slices.Repeat(c.First, 50)
	if got := mustPutVerification(t, s, e, c); got.Findings != 50 ||
		len(got.First) != record.MaxFirst {
		t.Errorf("names %d of %d findings", len(got.First), got.Findings)
	}
}

// TestSameCheckIsNotRecordedTwice within a day: the same result at the same level says nothing
// new.
func TestSameCheckIsNotRecordedTwice(t *testing.T) {
	s, root := newTestStore(t, false)
	e := mustWriteSnapshot(t, s, 1, nil)
	for _, step := range []struct {
		c     Verification
		files int
	}{
		{testVerification(LevelStructure, 1), 1},
		{testVerification(LevelStructure, 2), 1},
		{testVerification(LevelFull, 3), 2},         // another level
		{testVerification(LevelStructure, 4), 2},    // the last of its level is the same
		{damagedVerification(LevelStructure, 5), 3}, // another result
		{testVerification(LevelStructure, 6), 4},
		{testVerification(LevelStructure, 28), 4},
		{testVerification(LevelStructure, 29), 5}, // a day later
	} {
		got := mustPutVerification(t, s, e, step.c)
		if files := checkFiles(t, root); len(files) != step.files || !slices.Contains(files, got.Key) {
			t.Errorf("after %s %s at %s: %v, gives %s", step.c.Level, step.c.Outcome, step.c.Time, files,
				got.Key)
		}
	}
	// A verification by an unknown signer does not prevent ours from being written.
	other, _ := writeSnapshot(t.Context(), s, 2, nil)
	foreign := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, testKeys(t))})
	mustPutVerification(t, foreign, other, testVerification(LevelStructure, 1))
	if got := mustPutVerification(t, s, other, testVerification(LevelStructure,
		2)); got.Trust != Trusted {
		t.Errorf("the verification of an unknown signer counts as ours: %+v", got)
	}
}

// TestI8UntrustedOrDamagedVerificationDoesNotCount: none of these makes a
// snapshot verified.
func TestI8UntrustedOrDamagedVerificationDoesNotCount(t *testing.T) {
	unsign := func(b []byte) []byte {
		var f document.File
		if err := document.Decode(b, &f); err != nil {
			t.Fatal(err)
		}
		b, err := document.Encode(document.File{Payload: f.Payload})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tt := range map[string]struct {
		damaged bool // not only passed over
		tamper  func(t *testing.T, s *Store, root string, c SignedVerification)
	}{
		"unsigned": {false, func(t *testing.T, _ *Store, root string, c SignedVerification) {
			rewrite(t, root,
				c.Key, unsign)
		}},
		"unsigned and changed": {false, func(t *testing.T, _ *Store, root string, c SignedVerification) {
			rewrite(t, root, c.Key, func(b []byte) []byte {
				return bytes.Replace(unsign(b),
					[]byte(`\"keys\":2`), []byte(`\"keys\":9`), 1)
			})
		}},
		"changed": {true, func(t *testing.T, _ *Store, root string, c SignedVerification) {
			rewrite(t, root, c.Key, func(b []byte) []byte {
				return bytes.Replace(b, []byte(`\"keys\":2`),
					[]byte(`\"keys\":9`), 1)
			})
		}},
		"cut short": {true, func(t *testing.T, _ *Store, root string, c SignedVerification) {
			rewrite(t, root, c.Key, func(b []byte) []byte { return b[:len(b)/2] })
		}},
		"by an unknown signer": {false, func(t *testing.T, _ *Store, root string, c SignedVerification) {
			if err := os.Remove(filepath.Join(root, c.Key)); err != nil {
				t.Fatal(err)
			}
			foreign := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, testKeys(t))})
			e, err := foreign.GetEnvelope(t.Context(), EnvelopeKey{Source: c.Snapshot.Source,
				Time: c.Snapshot.Time, ID: c.Snapshot.ID})
			if err != nil {
				t.Fatal(err)
			}
			mustPutVerification(t, foreign, e, testVerification(LevelStructure, 1))
		}},
		"of another envelope of this name": {false, func(t *testing.T, s *Store, root string,
			c SignedVerification) {
			key := EnvelopeKey{Source: c.Snapshot.Source, Time: c.Snapshot.Time, ID: c.Snapshot.ID}
			e, err := s.GetEnvelope(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			e.Counts.Missing++ // signed by us, but not the one that was verified
			data, err := s.signer().Encode(e.Envelope.Key().String(), &e.Envelope, maxEnvelope)
			if err != nil {
				t.Fatal(err)
			}
			rewrite(t, root, key.String(), func([]byte) []byte { return data })
		}},
		"of an envelope that is not signed any more": {false, func(t *testing.T, _ *Store, root string,
			c SignedVerification) {
			rewrite(t, root, EnvelopeKey{Source: c.Snapshot.Source, Time: c.Snapshot.Time,
				ID: c.Snapshot.ID}.String(), unsign)
		}},
		"of a snapshot that is gone": {false, func(t *testing.T, _ *Store, root string,
			c SignedVerification) {
			key := EnvelopeKey{Source: c.Snapshot.Source, Time: c.Snapshot.Time, ID: c.Snapshot.ID}
			if err := os.Remove(filepath.Join(root, key.String())); err != nil {
				t.Fatal(err)
			}
		}},
		"replayed under another snapshot": {true, func(t *testing.T, s *Store, root string,
			c SignedVerification) {
			other := mustWriteSnapshot(t, s, 2, nil)
			to := filepath.Join(root, record.VerificationFolderOf(other.Key()), filepath.Base(c.Key))
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(root, c.Key), to); err != nil {
				t.Fatal(err)
			}
			if _, damaged, err := s.Verifications(t.Context(), other.Key()); err != nil ||
				len(damaged) != 1 {
				t.Errorf("the copy: %v, %v", damaged, err)
			}
		}},
		"replayed as a newer one": {true, func(t *testing.T, _ *Store, root string,
			c SignedVerification) {
			to := strings.Replace(c.Key, "/20260102T04", "/20260102T09", 1)
			if err := os.Rename(filepath.Join(root, c.Key), filepath.Join(root, to)); err != nil {
				t.Fatal(err)
			}
		}},
		"of another store": {true, func(t *testing.T, s *Store, root string, c SignedVerification) {
			other := *s
			other.marker.StoreID = strings.Repeat("0", 32)
			c.StoreID = other.ID()
			data, err := other.signer().Encode(c.Key, &c.Verification, maxVerification)
			if err != nil {
				t.Fatal(err)
			}
			rewrite(t, root, c.Key, func([]byte) []byte { return data })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, root := newTestStore(t, false)
			e := mustWriteSnapshot(t, s, 1, nil)
			c := mustPutVerification(t, s, e, testVerification(LevelStructure, 1))
			if got, by, err := s.Verified(t.Context(), testSource); err != nil || got.ID != e.ID ||
				by.Key != c.Key {
				t.Fatalf("before: %v, %v, %v", got.ID, by.Key, err)
			}
			tt.tamper(t, s, root, c)
			if got, by, err := s.Verified(t.Context(), testSource); !errors.Is(err, ErrNotFound) {
				t.Errorf("verified: %s by %s, %v", got.ID, by.Key, err)
			}
			keys, err := s.VerificationKeys(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			bad := 0
			for _, of := range keys {
				_, damaged, err := s.ReadVerifications(t.Context(), of)
				if err != nil {
					t.Fatal(err)
				}
				bad += len(damaged)
			}
			if (bad > 0) != tt.damaged {
				t.Errorf("%d damaged", bad)
			}
		})
	}
}

// TestI8SnapshotOfAnUnknownSignerIsNeverVerified: it cannot be relied on although it is whole.
func TestI8SnapshotOfAnUnknownSignerIsNeverVerified(t *testing.T) {
	s, root := newTestStore(t, false)
	foreign := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, testKeys(t))})
	theirs := mustWriteSnapshot(t, foreign, 1, nil)
	e, err := s.GetEnvelope(t.Context(), theirs.Key())
	if err != nil || e.Trust != UnknownSigner {
		t.Fatal(e.Trust, err)
	}
	mustPutVerification(t, s, e, testVerification(LevelStructure, 1))
	if got, _, err := s.Verified(t.Context(), testSource); !errors.Is(err, ErrNotFound) {
		t.Errorf("verified: %s, %v", got.ID, err)
	}
}

// TestDamageCountsUntilACheckAsDeepFindsNone: a later check of a lower level does not supersede
// damage.
func TestDamageCountsUntilACheckAsDeepFindsNone(t *testing.T) {
	s, _ := newTestStore(t, true)
	e := mustWriteSnapshot(t, s, 1, nil)
	for _, tt := range []struct {
		checks []Verification // oldest first
		want   int            // index
	}{
		{[]Verification{testVerification(LevelStructure, 1)}, 0},
		{[]Verification{testVerification(LevelFull, 1), testVerification(LevelStructure, 2)}, 1},
		{[]Verification{testVerification(LevelFull, 1), damagedVerification(LevelStructure, 2)}, 1},
		// the key came back
		{[]Verification{damagedVerification(LevelStructure, 1), testVerification(LevelStructure, 2)}, 1},
		{[]Verification{damagedVerification(LevelStructure, 1), testVerification(LevelSample, 2)}, 0},
		{[]Verification{damagedVerification(LevelFull, 1), testVerification(LevelStructure, 2)}, 0},
		{[]Verification{damagedVerification(LevelFull, 1), testVerification(LevelFull, 2),
			testVerification(LevelStructure,
				3)}, 2},
		// it may have read other packs
		{[]Verification{damagedVerification(LevelSample, 1), testVerification(LevelSample, 2)}, 0},
		{[]Verification{damagedVerification(LevelSample, 1), damagedVerification(LevelFull, 2),
			testVerification(LevelStructure, 3)},
			1},
	} {
		var list []SignedVerification
		for _, c := range tt.checks {
			c.Snapshot.SHA256 = e.SHA256
			list = append([]SignedVerification{{Verification: c,
				Signature: Signature{Trust: Unsigned}}}, list...)
		}
		got, ok := s.DecidingVerification(e, list)
		if want := tt.checks[tt.want]; !ok || !got.Time.Equal(want.Time) {
			t.Errorf("%+v: %s %s at %s", tt.checks, got.Level, got.Outcome, got.Time)
		}
	}
	if _, ok := s.DecidingVerification(e, nil); ok {
		t.Error("a verdict of nothing")
	}
}

func TestVerifiedIsTheNewestGoodOne(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, root string) {
		var all []Signed
		for n := range 4 {
			all = append(all, mustWriteSnapshot(t, s, int64(n+1), nil))
		}
		mustPutVerification(t, s, all[0], testVerification(LevelStructure, 1))
		want := mustPutVerification(t, s, all[1], testVerification(LevelFull, 2))
		mustPutVerification(t, s, all[2], testVerification(LevelStructure, 3))
		mustPutVerification(t, s, all[2], damagedVerification(LevelStructure, 4))
		if e, c, err := s.Verified(t.Context(), testSource); err != nil || e.SHA256 != all[1].SHA256 ||
			c.Key != want.Key {
			t.Errorf("%s by %s, %v", e.ID, c.Key, err)
		}
		// An envelope that cannot be read is passed over.
		mustPutVerification(t, s, all[3], testVerification(LevelStructure, 5))
		rewrite(t, root, all[3].Key().String(), func([]byte) []byte { return []byte("{}") })
		if e, _, err := s.Verified(t.Context(), testSource); err != nil || e.ID != all[1].ID {
			t.Errorf("%s, %v", e.ID, err)
		}
		if _, _, err := s.Verified(t.Context(), "nobody"); !errors.Is(err, ErrNotFound) {
			t.Errorf("of another source: %v", err)
		}
		if _, _, err := s.Verified(t.Context(), "../x"); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("of a path: %v", err)
		}
	})
}

func FuzzCheck(f *testing.F) {
	s := &Store{marker: marker{StoreID: strings.Repeat("0", 32), Encryption: encryptNo}, plain: true,
		limits: formatLimits()}
	k := VerificationKey{Snapshot: EnvelopeKey{Source: testSource, Time: testTime, ID: "0123456789ab"},
		Time: testTime, ID: "ba9876543210"}
	c := damagedVerification(LevelFull, 0)
	c.Format, c.StoreID, c.Key, c.ID = Format, s.ID(), k.String(), k.ID
	c.Snapshot = VerifiedSnapshot{Source: testSource, Time: testTime, ID: k.Snapshot.ID,
		SHA256: layout.SHA256Hex(nil)}
	data, err := s.signer().Encode(c.Key, &c, maxVerification)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := s.openVerification(k.String(), data); err != nil {
		f.Fatal(err)
	}
	f.Add(k.String(), data)
	f.Add("checks/a/b/c.json", []byte(`{"payload":"{\"format\":1}","signature":""}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		if k, ok := record.ParseVerificationKey(key); ok && (bucket.ValidateKey(key) != nil ||
			k.String() != key) {
			t.Errorf("%q became %q", key, k)
		}
		if c, err := s.openVerification(key, data); err == nil {
			if k, ok := record.ParseVerificationKey(key); !ok || k.Snapshot.ID != c.Snapshot.ID ||
				!k.Time.Equal(c.Time) {
				t.Errorf("%q holds the check %+v", key, c)
			}
		}
	})
}
