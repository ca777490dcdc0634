package object

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeWord = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	// cliWords are what only mgmtctl may say: also a flag whose name follows in another literal.
	cliWords = regexp.MustCompile("--([a-z]|[\"`]$)|\\bmgmtctl ([a-z]+ [a-z]+|keygen)")
)

func TestEveryCodeIsDefinedOnceAndInWholeSentences(t *testing.T) {
	seen := map[Code]bool{}
	for _, d := range Definitions() {
		switch {
		case seen[d.Code]:
			t.Errorf("%s is defined twice", d.Code)
		case !codeWord.MatchString(string(d.Code)):
			t.Errorf("%q is not a code", d.Code)
		case len(d.Severities) == 0 || !slices.Contains(Areas(), d.Area):
			t.Errorf("%s has no severity or no area", d.Code)
		}
		seen[d.Code] = true
		for _, text := range []string{d.Meaning, d.Next} {
			if !strings.HasSuffix(text, ".") || cliWords.MatchString(text) {
				t.Errorf("%s: %q is not a sentence, or names a command or flag", d.Code, text)
			}
		}
	}
}

// TestEveryCodeIsUsedAndEveryUsedCodeIsDefined parses the product: a finding takes its code from
// the constants of this package, with a severity of its definition, and no constant is left over.
func TestEveryCodeIsUsedAndEveryUsedCodeIsDefined(t *testing.T) {
	constants := codeConstants(t)
	used := map[string]bool{}
	for _, file := range productFiles(t) {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if name := objectName(n); strings.HasPrefix(name, "Code") && len(name) > len("Code") {
					used[name] = true
				}
			case *ast.CompositeLit:
				checkFinding(t, set, n, constants)
			}
			return true
		})
	}
	for name, code := range constants {
		if !used[name] {
			t.Errorf("%s is used nowhere", name)
		}
		if _, ok := Define(code); !ok {
			t.Errorf("%s has no definition", name)
		}
	}
}

// checkFinding checks a composite literal when it is a Finding.
func checkFinding(t *testing.T, set *token.FileSet, lit *ast.CompositeLit,
	constants map[string]Code) {
	t.Helper()
	if s, ok := lit.Type.(*ast.SelectorExpr); !ok || objectName(s) != "Finding" {
		return
	}
	fields := map[string]ast.Expr{}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			fields[kv.Key.(*ast.Ident).Name] = kv.Value
		}
	}
	if l, ok := fields["Code"].(*ast.BasicLit); ok {
		t.Errorf("%s: the code %s is not a constant of package object", set.Position(l.Pos()), l.Value)
	}
	code, ok1 := fields["Code"].(*ast.SelectorExpr)
	severity, ok2 := fields["Severity"].(*ast.SelectorExpr)
	if !ok1 || !ok2 || objectName(code) == "" || objectName(severity) == "" {
		return // variables
	}
	d, _ := Define(constants[objectName(code)])
	if !slices.ContainsFunc(d.Severities, func(s Severity) bool {
		return strings.EqualFold(s.String(), objectName(severity))
	}) {
		t.Errorf("%s: the definition of %s does not have severity %s", set.Position(lit.Pos()), d.Code,
			objectName(severity))
	}
}

// objectName returns the name of a selector object.Name, "" for any other selector.
func objectName(s *ast.SelectorExpr) string {
	if x, ok := s.X.(*ast.Ident); ok && x.Name == "object" {
		return s.Sel.Name
	}
	return ""
}

// codeConstants returns the constants of all files of codes by name.
func codeConstants(t *testing.T) map[string]Code {
	t.Helper()
	files, err := filepath.Glob("codes*.go")
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]Code{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Code" {
					constants[v.Names[0].Name] = Code(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`))
				}
			}
			return true
		})
	}
	return constants
}

// productFiles returns the Go files of internal and cmd, without tests and this package.
func productFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, root := range []string{"..", "../../cmd"} {
		if err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") &&
				!strings.HasPrefix(path, "../object/") {
				files = append(files, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
