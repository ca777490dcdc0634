package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// unguarded are the files that begin goroutines without internal/task, each with the reason why a
// panic there cannot be of what mgmtd reads, or may end the process.
var unguarded = map[string]string{
	"internal/schedule/scheduler.go":    "each function calls guarded or again",
	"internal/schedule/copier.go":       "the function calls again",
	"internal/schedule/verifier.go":     "the function calls again",
	"internal/service/server.go":        "it declares the group of background, which calls task.Again",
	"internal/service/fencewatch.go":    "each pass of a watch calls task.Call",
	"internal/service/ownercache.go":    "each read calls task.Call",
	"internal/service/dial.go":          "the goroutine calls task.Call",
	"internal/service/catalogsocket.go": "gRPC serves in it, and Recover guards each handler",
	"internal/workload/forward.go":      "the goroutine calls task.Call",
	"cmd/mgmtd/daemon.go":               "it serves gRPC and metrics, and guards each handler",
	"cmd/mgmtd/main.go":                 "the daemon itself runs in it: when that panics, it ends",
	"cmd/mgmtctl/confirm.go":            "it reads a line from the terminal",
	"cmd/mgmtctl/identity.go":           "it reads a passphrase from the terminal",
	"cmd/mgmtctl/connect.go":            "one command runs in the process, and ends with it",
	"cmd/mgmtctl/program.go":            "one command runs in the process, and ends with it",
}

// TestGoroutinesAreGuardedAgainstPanics: a panic in a goroutine without a recovery ends the daemon,
// and with it the snapshots of every management cluster. A group whose error nobody looks at loses
// the panic instead, so that what was to be done counts as done.
func TestGoroutinesAreGuardedAgainstPanics(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{".", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := "internal/" + filepath.ToSlash(path)
			if root != "." {
				name = strings.TrimPrefix(filepath.ToSlash(path), "../")
			}
			if entry.IsDir() && (strings.HasSuffix(name, "test") || name == "internal/task") {
				return filepath.SkipDir // packages for tests
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			begins, loses := goroutines(file)
			if loses {
				t.Errorf("%s loses the error of Wait, and a panic with it: return it, or call Finish", name)
			}
			if begins && unguarded[name] == "" {
				t.Errorf("%s begins goroutines: use internal/task, or say in this test why not", name)
			}
			used[name] = begins
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range unguarded {
		if !used[name] {
			t.Errorf("%s begins no goroutines any more: remove it from this test", name)
		}
	}
}

// goroutines reports whether a file has a go statement or a sync.WaitGroup, and whether it assigns
// what Wait returns to nothing.
func goroutines(file *ast.File) (begins, loses bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			begins = true
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "sync" && n.Sel.Name == "WaitGroup" {
				begins = true
			}
		case *ast.AssignStmt:
			left, ok := n.Lhs[0].(*ast.Ident)
			call, isCall := n.Rhs[0].(*ast.CallExpr)
			if !ok || !isCall || left.Name != "_" || len(n.Lhs) > 1 {
				break
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Wait" {
				loses = true
			}
		}
		return true
	})
	return begins, loses
}
