package service

import (
	"encoding/json"
	"testing"

	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// FuzzStoredPlan: what an operation is resumed by is the same after another round through the
// catalog.
func FuzzStoredPlan(f *testing.F) {
	part := restore.Plan{Units: []restore.Unit{{Name: "team-a/web", WorkloadID: "u",
		Objects: []restore.Object{{Action: restore.Adopt}}}}}
	for _, seed := range []any{storedRestore{Plan: part, Location: "main"},
		move.StoredPlan{Plan: move.Plan{Copy: part}, Tuning: restore.Tuning{Canary: "team-a/web"}}} {
		text, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"plan":{"units":[null]},"tuning":{"observe":-1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r, r2 storedRestore
		if round(t, text, &r, &r2) && (r.Plan.Digest() != r2.Plan.Digest() || r.Location != r2.Location ||
			r.Tuning != r2.Tuning) {
			t.Errorf("restore %s became another one", text)
		}
		var m, m2 move.StoredPlan
		if round(t, text, &m, &m2) && (m.Plan.Copy.Digest() != m2.Plan.Copy.Digest() ||
			m.Location != m2.Location || m.Tuning != m2.Tuning) {
			t.Errorf("move %s became another one", text)
		}
	})
}

// round decodes text, encodes the result and decodes that; it reports whether text can be decoded.
func round(t *testing.T, text []byte, first, second any) bool {
	t.Helper()
	if json.Unmarshal(text, first) != nil {
		return false
	}
	stored, err := json.Marshal(first)
	if err == nil {
		err = json.Unmarshal(stored, second)
	}
	if err != nil {
		t.Errorf("%s cannot be stored again: %v", text, err)
	}
	return err == nil
}
