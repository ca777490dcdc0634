package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// tellsToDelete matches an order to delete something: the verb at the beginning of a sentence or of
// one of its parts.
var tellsToDelete = regexp.MustCompile(`(?i:(^|[.;:,(\x60]\s*|` +
	`\b(then|or|and|to|first|kubectl)\s+)delete\s+)` +
	`((?i:it|them|one|all|the|this|that|these|those|its|any)\b|[A-Z][a-zA-Z]+|[a-z]+/)`)

// aboutStores are the places whose deletions are of snapshots and keys in a store, for which
// mgmtctl has commands.
var aboutStores = []string{"internal/store", "internal/retention", "internal/snapshot",
	"internal/verify", "internal/service/prune", "internal/service/pin", "cmd/mgmtctl/prune",
	"cmd/mgmtctl/snapshot", "cmd/mgmtctl/hints.go", "docs/retention.md", "docs/format.md"}

// TestNothingTellsAnybodyToDeleteAnObject: an object below a Cluster that controllers reconcile
// stands for a machine; somebody who deletes it by hand destroys that. No finding, hint, help or
// page says so: what a restore or a move has left is for operation rollback.
func TestNothingTellsAnybodyToDeleteAnObject(t *testing.T) {
	for _, order := range []string{"if its catalog is lost, delete the object and plan again",
		"kubectl delete machine/x", "find out which is right, then delete one of them"} {
		if !tellsToDelete.MatchString(order) {
			t.Errorf("%q is not seen as an order", order)
		}
	}
	for _, d := range object.Definitions() {
		if slices.Contains([]object.Area{object.AreaPrune, object.AreaVerify}, d.Area) {
			continue // these are about snapshots
		}
		for _, text := range []string{d.Meaning, d.Next} {
			if tellsToDelete.MatchString(text) {
				t.Errorf("%s: %s", d.Code, text)
			}
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 ||
				slices.Contains([]string{"e2e", "proto", "testdata"}, d.Name())) {
				return fs.SkipDir
			}
			return err
		}
		if slices.ContainsFunc(aboutStores, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return nil
		}
		switch {
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md":
			return checkPage(t, path)
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
			!strings.HasPrefix(name, "internal/object/"):
			return checkLiterals(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkPage(t *testing.T, path string) error {
	text, err := os.ReadFile(path)
	for i, line := range strings.Split(string(text), "\n") {
		if tellsToDelete.MatchString(line) && !strings.Contains(line, "snapshot") {
			t.Errorf("%s:%d: %s", path, i+1, strings.TrimSpace(line))
		}
	}
	return err
}

// checkLiterals checks the texts of a source file.
func checkLiterals(t *testing.T, path string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING &&
			tellsToDelete.MatchString(strings.Trim(text.Value, "\"`")) &&
			!strings.Contains(text.Value, "snapshot") {
			t.Errorf("%s: %s", files.Position(text.Pos()), text.Value)
		}
		return true
	})
	return nil
}
