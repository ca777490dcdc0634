package object

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestNoPackageOfTheProductNamesACommandOrFlag: an operator who reads a hint through another
// client than mgmtctl has no flags. mgmtctl adds its own, by code or HintKey.
func TestNoPackageOfTheProductNamesACommandOrFlag(t *testing.T) {
	for _, file := range productFiles(t) {
		if strings.HasPrefix(file, "../../cmd/") || strings.Contains(file, "test/") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && cliWords.MatchString(l.Value) {
				t.Errorf("%s: %s", set.Position(l.Pos()), l.Value)
			}
			return true
		})
	}
}
