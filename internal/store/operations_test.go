package store

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/store/seal"
)

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
		for _, seq := range []int64{10, 2, 1, 2} { // a second time is no error
			if err := s.PutOperationRecord(t.Context(), "0123456789ab", seq, "handed-over",
				[]byte(texts[seq])); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.PutOperationRecord(t.Context(), "0123456789ac", 1, "planned", nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "operations/0123456789ab/note.txt"), nil,
			0o600); err != nil {
			t.Fatal(err)
		}
		keys := recordKeys(t, s, "0123456789ab")
		var got []int64
		for _, k := range keys {
			got = append(got, k.Seq)
			text, err := s.GetOperationRecord(t.Context(), k)
			if err != nil || string(text) != texts[k.Seq] || k.State != "handed-over" ||
				k.Operation != "0123456789ab" {
				t.Errorf("record %s: %q, %v", k, text, err)
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
		if err != nil || s.Encrypted() && !bytes.HasPrefix(stored, []byte("age-encryption.org/v1\n")) {
			t.Errorf("stored %.40q, %v", stored, err)
		}
	})
}

func TestOperationRecordKeysHaveOneForm(t *testing.T) {
	s, _ := newTestStore(t, true)
	for name, k := range map[string]OperationRecordKey{
		"operation is a path": {Operation: "../owners", Seq: 1, State: "x"},
		"no operation":        {Seq: 1, State: "x"},
		"number 0":            {Operation: "a", State: "x"},
		"number too large":    {Operation: "a", Seq: 100_000_000, State: "x"},
		"no state":            {Operation: "a", Seq: 1},
		"state is a path":     {Operation: "a", Seq: 1, State: "a/b"},
		"state in capitals":   {Operation: "a", Seq: 1, State: "Running"},
	} {
		if err := s.PutOperationRecord(t.Context(), k.Operation, k.Seq, k.State, nil); err == nil {
			t.Errorf("%s: was written", name)
		}
		if _, err := s.GetOperationRecord(t.Context(), k); err == nil {
			t.Errorf("%s: was read", name)
		}
	}
	if _, err := s.OperationRecords(t.Context(), "../owners"); err == nil {
		t.Error("listed an operation that is a path")
	}
	for _, key := range []string{
		"operations/a/1-x.json.zst", "operations/a/000000001-x.json.zst",
		"operations/a/+0000001-x.json.zst", "operations/a/00000001-x.json.zst.bak",
		"operations/a/00000001-.json.zst", "operations/a/00000001-x", "operations/a",
		"owners/a/00000001-x.json.zst", "operations/a/00000001-x.json.zst.age.age",
	} {
		if k, ok := record.ParseOperationKey(key); ok {
			t.Errorf("%s was read as %+v", key, k)
		}
	}
}

func TestOperationRecordOfAnUnknownSignerIsRefused(t *testing.T) {
	mine, theirs := testKeys(t), testKeys(t)
	root := t.TempDir()
	s := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, mine), Create: true})
	if err := s.PutOperationRecord(t.Context(), "op", 1, "paused", []byte("do it")); err != nil {
		t.Fatal(err)
	}
	k := recordKeys(t, s, "op")[0]
	for name, o := range map[string]KeyOptions{
		"unknown signer": {IdentityFiles: mine.IdentityFiles, TrustedKeyFiles: theirs.TrustedKeyFiles},
		"unchecked":      {IdentityFiles: mine.IdentityFiles},
	} {
		_, err := mustOpen(t, Options{Bucket: directory.New(root),
			Keys: mustLoad(t, o)}).GetOperationRecord(
			t.Context(), k)
		if _, ok := errors.AsType[*TrustError](err); !ok {
			t.Errorf("%s: %v, want *TrustError", name, err)
		}
	}
	for name, o := range map[string]KeyOptions{"no identity": {TrustedKeyFiles: mine.TrustedKeyFiles},
		"wrong identity": {IdentityFiles: theirs.IdentityFiles}} {
		_, err := mustOpen(t, Options{Bucket: directory.New(root),
			Keys: mustLoad(t, o)}).GetOperationRecord(
			t.Context(), k)
		if _, ok := errors.AsType[*KeyError](err); !ok {
			t.Errorf("%s: %v, want *KeyError", name, err)
		}
	}
	// Who can encrypt but not sign cannot make one up.
	forger := mustOpen(t, Options{Bucket: directory.New(root),
		Keys: mustLoad(t, KeyOptions{Recipients: mine.Recipients})})
	if err := forger.PutOperationRecord(t.Context(), "op", 2, "paused",
		[]byte("do evil")); err != nil {
		t.Fatal(err)
	}
	forged := k
	forged.Seq = 2
	_, err := s.GetOperationRecord(t.Context(), forged)
	if _, ok := errors.AsType[*TrustError](err); !ok {
		t.Errorf("forged record: %v, want *TrustError", err)
	}
	// Nor move one.
	data, err := os.ReadFile(filepath.Join(root, k.String()))
	if err != nil {
		t.Fatal(err)
	}
	k.Seq = 3
	if err := os.WriteFile(filepath.Join(root, k.String()), data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.GetOperationRecord(t.Context(), k)
	wantCorrupt(t, err)
}

func TestDamagedOperationRecordIsCorrupt(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, root string) {
		if err := s.PutOperationRecord(t.Context(), "op", 1, "paused",
			[]byte("some text that is long enough")); err != nil {
			t.Fatal(err)
		}
		k := recordKeys(t, s, "op")[0]
		whole, err := os.ReadFile(filepath.Join(root, k.String()))
		if err != nil {
			t.Fatal(err)
		}
		for name, damage := range damages {
			rewrite(t, root, k.String(), func([]byte) []byte { return damage(bytes.Clone(whole)) })
			_, err := s.GetOperationRecord(t.Context(), k)
			if err == nil {
				t.Errorf("%s: was read", name)
			}
		}
	})
}

func TestOperationRecordHeadHasALimit(t *testing.T) {
	s, root := newTestStore(t, true)
	if err := s.PutOperationRecord(t.Context(), "op", 1, "paused", []byte("text")); err != nil {
		t.Fatal(err)
	}
	k := recordKeys(t, s, "op")[0]
	stored, err := os.ReadFile(filepath.Join(root, k.String()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := seal.Open(k.String(), stored, nil, s.limits.maxPlain)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	head, text, _ := bytes.Cut(plain, []byte("\n"))
	for size, ok := range map[int]bool{len(head): true, maxHead: true, maxHead + 1: false} {
		// white space changes nothing that is signed
		padding := bytes.Repeat([]byte(" "), size-len(head))
		_, sealed, err := s.seal(KindShard, slices.Concat(head, padding, []byte("\n"), text))
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, root, k.String(), func([]byte) []byte { return sealed })
		_, err = s.GetOperationRecord(t.Context(), k)
		if _, corrupt := errors.AsType[*CorruptError](err); corrupt == ok || ok && err != nil {
			t.Errorf("first line of %d bytes: %v", size, err)
		}
	}
}
