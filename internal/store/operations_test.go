package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

var testHead = OperationHead{Host: "host-a", Time: time.Unix(1e9, 5e6).UTC(), Kind: "move",
	State: "running", Source: "prod", Target: "next"}

// putRecord seals a record and puts it.
func putRecord(t *testing.T, s *Store, operation string, seq int64, text []byte) error {
	t.Helper()
	r, err := s.SealOperationRecord(operation, seq, testHead, text)
	if err != nil {
		t.Fatal(err)
	}
	return s.PutOperationRecord(t.Context(), r)
}

func recordKeys(t *testing.T, s *Store, operation string) []OperationRecordKey {
	t.Helper()
	keys, err := s.OperationRecords(t.Context(), operation)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestOperationRecordsAreListedAndRead(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, root string) {
		texts := map[int64]string{1: `{"plan":"…"}`, 2: "", 10: "two\nlines \x00 and \xff"}
		for _, seq := range []int64{10, 2, 1} {
			if err := putRecord(t, s, "0123456789ab", seq, []byte(texts[seq])); err != nil {
				t.Fatal(err)
			}
		}
		if err := putRecord(t, s, "0123456789ac", 1, nil); err != nil {
			t.Fatal(err)
		}
		// Names that no writer uses, such as those of an early draft of the format, are passed over.
		for _, name := range []string{"note.txt", "00000003-running.json.zst.age"} {
			if err := os.WriteFile(filepath.Join(root, "operations/0123456789ab", name), nil,
				0o600); err != nil {
				t.Fatal(err)
			}
		}
		keys := recordKeys(t, s, "0123456789ab")
		var got []int64
		for _, k := range keys {
			got = append(got, k.Seq)
			head, text, _, err := s.GetOperationRecord(t.Context(), k)
			if err != nil || string(text) != texts[k.Seq] || head != testHead ||
				k.Operation != "0123456789ab" {
				t.Errorf("record %s: %+v, %q, %v", k, head, text, err)
			}
		}
		if !slices.Equal(got, []int64{1, 2, 10}) {
			t.Errorf("records %v", got)
		}
		ids, err := s.Operations(t.Context())
		if diff := cmp.Diff([]string{"0123456789ab", "0123456789ac"}, ids); err != nil || diff != "" {
			t.Errorf("operations: %v (-want +got):\n%s", err, diff)
		}
		stored, err := os.ReadFile(filepath.Join(root, keys[0].String()))
		if err != nil || s.Encrypted() && !bytes.Contains(stored, []byte("\nage-encryption.org/v1\n")) {
			t.Errorf("stored %.40q, %v", stored, err)
		}
	})
}

// TestOneOfTwoHostsWritesARecord: a number is written once, and a writer recognizes its own record.
func TestOneOfTwoHostsWritesARecord(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, _ string) {
		first, err := s.SealOperationRecord("op", 1, testHead, []byte("same text"))
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.SealOperationRecord("op", 1, testHead, []byte("same text"))
		if err != nil || first.SHA256 == second.SHA256 {
			t.Fatalf("two records are equal: %v", err)
		}
		for range 2 { // a second time, after a lost answer, is no error
			if err := s.PutOperationRecord(t.Context(), first); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.PutOperationRecord(t.Context(), second); !errors.Is(err, ErrExists) {
			t.Errorf("the other host: %v, want ErrExists", err)
		}
		for r, want := range map[*OperationRecord]bool{&first: true, &second: false} {
			if got, err := s.HasOperationRecord(t.Context(), r.Key, r.SHA256); err != nil || got != want {
				t.Errorf("is stored: %v, %v, want %v", got, err, want)
			}
		}
		free := first.Key
		free.Seq = 2
		if _, err := s.HasOperationRecord(t.Context(), free, first.SHA256); !errors.Is(err, ErrNotFound) {
			t.Errorf("free number: %v, want ErrNotFound", err)
		}
	})
}

func TestOperationRecordKeysHaveOneForm(t *testing.T) {
	s, _ := newTestStore(t, true)
	for name, k := range map[string]OperationRecordKey{
		"operation is a path": {Operation: "../owners", Seq: 1},
		"no operation":        {Seq: 1},
		"number 0":            {Operation: "a"},
		"number too large":    {Operation: "a", Seq: 100_000_000},
	} {
		if _, err := s.SealOperationRecord(k.Operation, k.Seq, testHead, nil); err == nil {
			t.Errorf("%s: was sealed", name)
		}
		if _, _, _, err := s.GetOperationRecord(t.Context(), k); err == nil {
			t.Errorf("%s: was read", name)
		}
		if _, err := s.GetOperationHead(t.Context(), k); err == nil {
			t.Errorf("%s: its head was read", name)
		}
	}
	if _, err := s.OperationRecords(t.Context(), "../owners"); err == nil {
		t.Error("listed an operation that is a path")
	}
	for _, key := range []string{
		"operations/a/1.json.zst", "operations/a/000000001.json.zst", "operations/a/+0000001.json.zst",
		"operations/a/00000001.json.zst.bak", "operations/a/00000001-x.json.zst", "operations/a/00000001",
		"operations/a", "owners/a/00000001.json.zst", "operations/a/00000001.json.zst.age.age",
	} {
		if k, ok := record.ParseOperationKey(key); ok {
			t.Errorf("%s was read as %+v", key, k)
		}
	}
}

// TestOperationRecordOfAnUnknownSignerIsRefused: the head is read without an identity, and neither
// it nor the text without a trusted signature.
func TestOperationRecordOfAnUnknownSignerIsRefused(t *testing.T) {
	mine, theirs := testKeys(t), testKeys(t)
	root := t.TempDir()
	s := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, mine), Create: true})
	if err := putRecord(t, s, "op", 1, []byte("do it")); err != nil {
		t.Fatal(err)
	}
	k := recordKeys(t, s, "op")[0]
	for name, o := range map[string]KeyOptions{
		"unknown signer": {IdentityFiles: mine.IdentityFiles, TrustedKeyFiles: theirs.TrustedKeyFiles},
		"unchecked":      {IdentityFiles: mine.IdentityFiles},
	} {
		st := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, o)})
		_, _, _, err := st.GetOperationRecord(t.Context(), k)
		_, headErr := st.GetOperationHead(t.Context(), k)
		for _, err := range []error{err, headErr} {
			if _, ok := errors.AsType[*TrustError](err); !ok {
				t.Errorf("%s: %v, want *TrustError", name, err)
			}
		}
	}
	for name, o := range map[string]KeyOptions{"no identity": {TrustedKeyFiles: mine.TrustedKeyFiles},
		"wrong identity": {IdentityFiles: theirs.IdentityFiles, TrustedKeyFiles: mine.TrustedKeyFiles}} {
		st := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, o)})
		_, _, _, err := st.GetOperationRecord(t.Context(), k)
		if _, ok := errors.AsType[*KeyError](err); !ok {
			t.Errorf("%s: %v, want *KeyError", name, err)
		}
		if head, err := st.GetOperationHead(t.Context(), k); err != nil || head != testHead {
			t.Errorf("%s: head %+v, %v", name, head, err)
		}
	}
	// Who can encrypt but not sign cannot write one.
	forger := mustOpen(t, Options{Bucket: directory.New(root),
		Keys: mustLoad(t, KeyOptions{Recipients: mine.Recipients})})
	r, err := forger.SealOperationRecord("op", 2, testHead, []byte("do evil"))
	if err != nil {
		t.Fatal(err)
	}
	if err := forger.PutOperationRecord(t.Context(), r); err == nil {
		t.Error("a record without a signature was written")
	}
	// Nor place one that it sealed, nor move one.
	moved, err := os.ReadFile(filepath.Join(root, k.String()))
	if err != nil {
		t.Fatal(err)
	}
	for seq, data := range map[int64][]byte{2: r.stored, 3: moved} {
		k.Seq = seq
		if err := os.WriteFile(filepath.Join(root, k.String()), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := s.GetOperationRecord(t.Context(), k); err == nil {
			t.Errorf("record %d, which nobody signed, was read", seq)
		}
	}
}

func TestDamagedOperationRecordIsCorrupt(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, root string) {
		if err := putRecord(t, s, "op", 1, []byte("some text that is long enough")); err != nil {
			t.Fatal(err)
		}
		k := recordKeys(t, s, "op")[0]
		whole, err := os.ReadFile(filepath.Join(root, k.String()))
		if err != nil {
			t.Fatal(err)
		}
		for name, damage := range damages {
			rewrite(t, root, k.String(), func([]byte) []byte { return damage(bytes.Clone(whole)) })
			// Only a signature protects the head.
			if _, text, _, err := s.GetOperationRecord(t.Context(), k); err == nil &&
				(s.Encrypted() || string(text) != "some text that is long enough") {
				t.Errorf("%s: was read", name)
			}
		}
	})
}

func TestOperationRecordHeadHasALimit(t *testing.T) {
	s, root := newTestStore(t, true)
	if err := putRecord(t, s, "op", 1, []byte("text")); err != nil {
		t.Fatal(err)
	}
	k := recordKeys(t, s, "op")[0]
	stored, err := os.ReadFile(filepath.Join(root, k.String()))
	if err != nil {
		t.Fatal(err)
	}
	line, sealed, _ := bytes.Cut(stored, []byte("\n"))
	for size, ok := range map[int]bool{len(line): true, maxHead - 1: true, maxHead: false} {
		// white space changes nothing that is signed
		padding := bytes.Repeat([]byte(" "), size-len(line))
		rewrite(t, root, k.String(), func([]byte) []byte {
			return slices.Concat(line, padding, []byte("\n"), sealed)
		})
		_, _, _, err = s.GetOperationRecord(t.Context(), k)
		if _, corrupt := errors.AsType[*CorruptError](err); corrupt == ok || ok && err != nil {
			t.Errorf("first line of %d bytes: %v", size, err)
		}
		if _, err := s.GetOperationHead(t.Context(), k); (err == nil) != ok {
			t.Errorf("head of %d bytes: %v", size, err)
		}
	}
}

// TestRemovedOperationEndsWithItsNewestRecord: a removal that ends halfway leaves the record that
// says that the operation is final.
func TestRemovedOperationEndsWithItsNewestRecord(t *testing.T) {
	s, root := newTestStore(t, true)
	for seq := range int64(3) {
		if err := putRecord(t, s, "op", seq+1, fmt.Appendf(nil, "%d", seq)); err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	s.bucket = &removals{Bucket: directory.New(root), order: &order}
	if n, err := s.RemoveOperation(t.Context(), "op", 2); err != nil || n != 0 {
		t.Errorf("removed %d of an operation that has begun again, %v", n, err)
	}
	if n, err := s.RemoveOperation(t.Context(), "op", 3); err != nil || n != 3 {
		t.Errorf("removed %d, %v", n, err)
	}
	if !slices.IsSorted(order) || len(order) != 3 || len(recordKeys(t, s, "op")) != 0 {
		t.Errorf("removed in the order %v", order)
	}
}

// removals is a directory that notes in which order keys are deleted.
type removals struct {
	*directory.Bucket
	order *[]string
}

func (r *removals) Delete(ctx context.Context, key string) error {
	*r.order = append(*r.order, key)
	return r.Bucket.Delete(ctx, key)
}
