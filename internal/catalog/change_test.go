package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestDamagedCatalogNamesWhatIsNotFinished: the operator must not throw away the only record of an
// operation that left workload clusters paused.
func TestDamagedCatalogNamesWhatIsNotFinished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	c, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[Kind]OperationID{}
	for _, kind := range []Kind{KindMove, KindSnapshot} {
		op, err := c.CreateOperation(t.Context(), Operation{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.SetState(t.Context(), op.ID, Running, Outcome{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Journal(op.ID, JournalOptions{}).Do(t.Context(), testStep,
			func(context.Context, *StepHandle) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SetState(t.Context(), op.ID, Failed, Outcome{}); err != nil {
			t.Fatal(err)
		}
		ids[kind] = op.ID
	}
	if err := c.update(t.Context(), func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keySchema, []byte("?"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path, Options{})
	damaged, ok := errors.AsType[*DamagedError](err)
	if !ok {
		t.Fatalf("%v, want a *DamagedError", err)
	}
	hint := damaged.Hint()
	for part, want := range map[string]bool{string(ids[KindMove]) + " (move, failed)": true,
		string(ids[KindSnapshot]): false, "do not delete it": true, "mirror": true,
		"disposable": false} {
		if strings.Contains(hint, part) != want {
			t.Errorf("hint %q: %q is in it: %v, want %v", hint, part, !want, want)
		}
	}
}

// FuzzChange: a change comes from a record that another host wrote. Whatever it holds, the catalog
// stays whole.
func FuzzChange(f *testing.F) {
	id := OperationID("0123456789ab")
	for _, text := range []string{
		`{"operation":{"id":"0123456789ab","kind":"move","state":"failed"},"units":{"a/b":"paused"}}`,
		`{"steps":[{"step":"a/b/pause","state":"undone"}],
			"values":[{"step":"a/b/pause","key":"k","data":1}]}`,
		`{"events":[{"seq":7,"type":"message","message":"x"}]}`,
		`{"documents":[{"name":"plan","info":{"size":1,"sha256":"","chunks":1},"chunks":["AA=="]}]}`,
		`{"documents":[{"name":"record","info":{"chunks":-1},"first":-9,"chunks":[null]}]}`,
	} {
		f.Add(text)
	}
	whole := Change{Operation: &Operation{ID: id, Kind: KindMove, State: Failed}}
	f.Fuzz(func(t *testing.T, text string) {
		var change Change
		if json.Unmarshal([]byte(text), &change) != nil {
			return
		}
		c, err := Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		op, err := c.Import(t.Context(), id, []Change{whole, change}, MirrorState{Seq: 1},
			func(*Operation) {})
		if err == nil && op.ID != id {
			t.Errorf("imported %+v", op)
		}
		if _, err := c.Operations(t.Context(), OperationFilter{}); err != nil {
			t.Error(err)
		}
	})
}
