package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestAHiddenSnapshotIsMissed: somebody removes the newest envelope. This host knows it: its number
// is not given again, a verify and a restore say so, and a prune removes no content until the
// operator accepts that it is gone.
func TestAHiddenSnapshotIsMissed(t *testing.T) {
	b := newPruneFixture(t, Retention{Policy: retention.Policy{Last: 1}})
	b.take(3)
	c, err := b.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known, err := readKnown(t.Context(), c, b.st, "uid")
	if err != nil || known.highest != 3 || len(known.missing) > 0 {
		t.Fatalf("before: %+v, %v", known, err)
	}
	hidden := b.keys[2]
	if err := os.Remove(filepath.Join(b.root, hidden.String())); err != nil {
		t.Fatal(err)
	}
	if known, err = readKnown(t.Context(), c, b.st, "uid"); err != nil || known.highest != 3 ||
		len(known.missing) != 1 || known.missing[0].ID != string(hidden.ID) {
		t.Fatalf("hidden: %+v, %v", known, err)
	}
	_, findings, err := verifyNow(t, b.Server, verifyRequest{level: store.LevelStructure})
	if err != nil || !strings.Contains(strings.Join(findings, " "), string(object.CodeSnapshotMissing)) {
		t.Errorf("verify: %v, %v", findings, err)
	}
	_, p, err := b.preparePrune(t.Context(), b.pruneByRules(""))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := retention.NewPlan(t.Context(), p.options)
	if err == nil {
		err = retention.CountContent(t.Context(), p.options, plan)
	}
	if err != nil || !plan.Blocked {
		t.Errorf("a prune would remove content: %v", err)
	}
	accepting := b.pruneByRules("")
	accepting.options.AcceptGaps = true
	if _, p, err = b.preparePrune(t.Context(), accepting); err == nil {
		plan, err = retention.NewPlan(t.Context(), p.options)
	}
	if err == nil {
		_, err = retention.Execute(t.Context(), p.options, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	if known, err = readKnown(t.Context(), c, b.st, "uid"); err != nil || known.highest != 3 ||
		len(known.missing) > 0 {
		t.Errorf("accepted: %+v, %v", known, err)
	}
}
