package object

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNoPackageOfTheProductNamesACommandOrFlag: an operator who reads a hint through another
// client than mgmtctl has no flags. mgmtctl adds its own, by code or HintKey.
func TestNoPackageOfTheProductNamesACommandOrFlag(t *testing.T) {
	for _, file := range productFiles(t) {
		// A file commands.go has the commands of other programs, which every client can show.
		if strings.HasPrefix(file, "../../cmd/") || strings.Contains(file, "test/") ||
			strings.HasSuffix(file, "/commands.go") {
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

// deletes matches a text that says to delete something. "Deleted" and what the garbage collector
// "would delete" only report.
var deletes = regexp.MustCompile(`(?i)\bdelete\b`)

// TestNoHintSaysToDeleteAnObjectOfAWorkloadCluster: a hint of an earlier version told people to
// delete an object that a restore had left. Its finalizers hold a Machine or a server of a
// provider until its controllers work again, and these then remove the machine itself.
func TestNoHintSaysToDeleteAnObjectOfAWorkloadCluster(t *testing.T) {
	ofObjects := []Area{AreaPlan, AreaMove, AreaRun, AreaMgmt}
	for _, d := range Definitions() {
		if slices.Contains(ofObjects, d.Area) && deletes.MatchString(d.Next) {
			t.Errorf("%s: %s", d.Code, d.Next)
		}
	}
	folders := []string{"../capture/", "../kube/", "../move/", "../ownership/", "../preflight/",
		"../restore/"}
	found := 0
	for _, file := range productFiles(t) {
		if !slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(file, f) }) {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			text, ok := hintText(n)
			if ok {
				found++
			}
			if ok && deletes.MatchString(text) {
				t.Errorf("%s: %s", set.Position(n.Pos()), text)
			}
			return true
		})
	}
	if found == 0 {
		t.Error("no hint was found")
	}
}

// hintText returns the literals of a hint: the field of a finding or an error, or the body of a
// method Hint.
func hintText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Hint" || key.Name == "Tip") {
			return literals(n.Value), true
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "Hint" && i < len(n.Rhs) {
				return literals(n.Rhs[i]), true
			}
		}
	case *ast.FuncDecl:
		if n.Name.Name == "Hint" && n.Recv != nil {
			return literals(n.Body), true
		}
	}
	return "", false
}

// literals returns the string literals below a node, joined.
func literals(n ast.Node) string {
	var b strings.Builder
	ast.Inspect(n, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				b.WriteString(text)
			}
		}
		return true
	})
	return b.String()
}
