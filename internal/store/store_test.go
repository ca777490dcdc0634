package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

func TestOpenChecksFormatAndKeys(t *testing.T) {
	const goodID = "0123456789abcdef0123456789abcdef"
	o := testKeys(t)
	keys := mustLoad(t, o)
	reader := mustLoad(t, KeyOptions{IdentityFiles: o.IdentityFiles})
	const age1 = `{"format":1,"storeID":"` + goodID +
		`","created":"2026-01-02T03:04:05Z","encryption":"age"}`
	plain1 := strings.Replace(age1, `"age"`, `"none"`, 1)
	isUsage := func(err error) bool { _, ok := errors.AsType[*UsageError](err); return ok }
	isFormat := func(n int) func(error) bool {
		return func(err error) bool {
			f, ok := errors.AsType[*FormatError](err)
			return ok && f.Format == n && f.Hint() != ""
		}
	}
	isCorrupt := func(err error) bool { _, ok := errors.AsType[*CorruptError](err); return ok }
	isMissing := func(err error) bool {
		return errors.Is(err, ErrStoreMissing) &&
			!errors.Is(err, ErrNotFound)
	}
	tests := []struct {
		name   string
		marker string // of the store that is there; "" for none
		file   string // another file that is there
		open   Options
		want   func(error) bool // nil for success
	}{
		{"no store", "", "", Options{Keys: keys}, isMissing},
		{"its records are there", "", "owners/w-1.json", Options{Keys: keys}, isCorrupt},
		{"its records are there, create", "", "checks/uid/x.json", Options{Keys: keys, Create: true},
			isCorrupt},
		{"no store, create", "", "", Options{Keys: keys, Create: true}, nil},
		{"no store, create plain", "", "", Options{Plain: true, Create: true}, nil},
		{"no store, create without recipient", "", "", Options{Create: true}, isUsage},
		{"create with an identity only", "", "", Options{Keys: reader, Create: true}, isUsage},
		{"plain and recipients", "", "", Options{Keys: keys, Plain: true, Create: true}, isUsage},
		{"encrypted", age1, "", Options{Keys: keys}, nil},
		{"encrypted, create finds it", age1, "", Options{Keys: keys, Create: true}, nil},
		{"encrypted, no keys", age1, "", Options{}, nil},
		{"encrypted, asked for plain", age1, "", Options{Plain: true}, isUsage},
		{"plain", plain1, "", Options{Plain: true, Create: true}, nil},
		{"plain, only to read", plain1, "", Options{Keys: reader}, nil},
		{"plain, with recipients", plain1, "", Options{Keys: keys}, isUsage},
		{"plain, with recipients, create", plain1, "", Options{Keys: keys, Create: true}, isUsage},
		{"future format", strings.Replace(age1, `:1,`, `:3,`, 1), "", Options{}, isFormat(3)},
		{"future format, nothing else known", `{"format":7,"layout":[]}`, "",
			Options{Keys: keys, Create: true}, isFormat(7)},
		{"a later field of format 1", strings.Replace(age1, `}`, `,"note":"x"}`, 1), "", Options{}, nil},
		{"marker is not JSON", "hello", "", Options{}, isFormat(0)},
		{"marker is empty", " ", "", Options{}, isFormat(0)},
		{"marker of something else", `{"version":3}`, "", Options{}, isFormat(0)},
		{"marker has a bad id", strings.Replace(age1, goodID, "x", 1), "", Options{}, isCorrupt},
		{"marker names a field twice", strings.Replace(age1, `}`, `,"Encryption":"none"}`, 1), "",
			Options{}, isCorrupt},
		{"marker has another cipher", strings.Replace(age1, `"age"`, `"rot13"`, 1), "", Options{},
			isCorrupt},
		{"marker is huge", age1 + strings.Repeat(" ", maxMarker), "", Options{}, isCorrupt},
		{"foreign files", "", "home/file", Options{Keys: keys, Create: true}, isFormat(0)},
		{"snapshots without a marker", "", "snapshots/uid/20260102T150405.000Z-0123456789ab.json",
			Options{Keys: keys, Create: true}, isCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{markerKey: tt.marker, tt.file: "x"} {
				if name == "" || text == "" {
					continue
				}
				path := filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text),
					0o600)); err != nil {
					t.Fatal(err)
				}
			}
			tt.open.Bucket = directory.New(root)
			s, err := Open(t.Context(), tt.open)
			if tt.want != nil {
				if err == nil || !tt.want(err) {
					t.Errorf("error %v is not the one that is wanted", err)
				}
				if data, _ := os.ReadFile(filepath.Join(root, markerKey)); string(data) != tt.marker {
					t.Errorf("a refused open changed the marker to %q", data)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.marker != "" && s.ID() != goodID || !layout.IsHex(s.ID(), 32) || s.Created().IsZero() {
				t.Errorf("id %q, created %v", s.ID(), s.Created())
			}
			again := mustOpen(t, Options{Bucket: directory.New(root)})
			if again.ID() != s.ID() || again.Encrypted() != s.Encrypted() {
				t.Error("the store is another one when opened again")
			}
		})
	}
}

func TestOpenCreatesOnlyTheLastFolder(t *testing.T) {
	parent := t.TempDir()
	mustOpen(t, Options{Bucket: directory.New(filepath.Join(parent, "new")), Plain: true,
		Create: true})
	_, err := Open(t.Context(), Options{Bucket: directory.New(filepath.Join(parent, "not-mounted",
		"store")),
		Plain: true, Create: true})
	if !errors.Is(err, ErrStoreMissing) {
		t.Errorf("error %v, want ErrStoreMissing", err)
	}
}

func TestOfManyCreatorsOneMakesTheStore(t *testing.T) {
	root := t.TempDir()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := Open(t.Context(), Options{Bucket: directory.New(root), Plain: true, Create: true})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.ID()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("different stores: %v", ids)
		}
	}
}

func TestWriteNeedsToBeAskedFor(t *testing.T) {
	_, encryptedRoot := newTestStore(t, false)
	_, plainRoot := newTestStore(t, true)
	for name, root := range map[string]string{"encrypted without recipient": encryptedRoot,
		"plain without Plain": plainRoot} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, Options{Bucket: directory.New(root)})
			_, packErr := s.NewPackWriter(t.Context(), time.Time{})
			_, shardErr := s.PutShard(t.Context(), nil)
			_, treeErr := s.PutTree(t.Context(), Tree{})
			_, envelopeErr := s.PutEnvelope(t.Context(), Envelope{})
			for call, err := range map[string]error{"pack": packErr, "shard": shardErr, "tree": treeErr,
				"envelope": envelopeErr} {
				if _, ok := errors.AsType[*UsageError](err); !ok {
					t.Errorf("%s: %v, want *UsageError", call, err)
				}
			}
		})
	}
}

// TestCrashBetweenPutsLeavesNoSnapshot: a run that dies between any two writes leaves no snapshot,
// and the next run makes a whole one.
func TestCrashBetweenPutsLeavesNoSnapshot(t *testing.T) {
	const puts = 4 // pack, shard, tree, envelope
	for n := range puts + 1 {
		s, root := newTestStore(t, false)
		bucket := &crashing{Bucket: s.bucket}
		bucket.puts.Store(int32(n))
		faulty := *s
		faulty.bucket = bucket
		_, err := writeSnapshot(t.Context(), &faulty, 1, nil)
		if n == puts {
			if err != nil || bucket.hits.Load() != 0 {
				t.Fatalf("with all puts: %v, %d faults", err, bucket.hits.Load())
			}
			continue
		}
		if !errors.Is(err, errCrash) || bucket.hits.Load() == 0 {
			t.Fatalf("crash at put %d: %v, %d faults", n, err, bucket.hits.Load())
		}
		if keys, err := s.Snapshots(t.Context(), ""); err != nil || len(keys) != 0 {
			t.Fatalf("crash at put %d: snapshots %v, %v", n, keys, err)
		}
		signed := mustWriteSnapshot(t, s, 1, nil)
		report, err := mustOpen(t, Options{Bucket: directory.New(root)}).VerifyStructure(t.Context(),
			signed.Envelope, nil)
		if err != nil || len(report.Findings) != 0 {
			t.Errorf("after a crash at put %d and another run: %v, %v", n, report.Findings, err)
		}
	}
}
