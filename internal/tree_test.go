// Package internal_test checks the shape of the source tree that ARCHITECTURE.md and
// docs/development.md describe.
package internal_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostExported is how many types and functions a package may export at top level. A package with
// more has no face that a reader can hold in mind: it is divided, or hides more.
const mostExported = 40

// wide are the packages that may export more, each with its reason.
var wide = map[string]string{
	"store":   "the whole format of the bucket, which snapshot, restore, retention and verify share",
	"capi":    "one row per kind and one name per fact about Cluster API",
	"catalog": "all records of operations, schedules and snapshots",
}

// sources parses the files of each package below internal/, without tests, by its directory.
func sources(t *testing.T) map[string][]*ast.File {
	t.Helper()
	files := map[string][]*ast.File{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") ||
			strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		files[dir] = append(files[dir], file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// exported returns the exported types and functions that a file declares at top level.
func exported(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}

func TestPackagesExportFewNames(t *testing.T) {
	for dir, files := range sources(t) {
		if wide[dir] != "" {
			continue
		}
		var names []string
		for _, file := range files {
			names = append(names, exported(file)...)
		}
		if len(names) > mostExported {
			t.Errorf("internal/%s exports %d types and functions, more than %d: %s", dir, len(names),
				mostExported, strings.Join(names, ", "))
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for dir, files := range sources(t) {
		documented := false
		for _, file := range files {
			documented = documented || file.Doc != nil
		}
		if !documented {
			t.Errorf("internal/%s has no package comment", dir)
		}
	}
}

// testOfAPI matches the names of tests that "make test-api" runs, and TestMain, which is no test.
var testOfAPI = regexp.MustCompile(`^Test(API|Main$)`)

// TestMakeTestAPIRunsEveryTestOfItsTag: the target selects tests by their prefix, so that a test of
// tag api with another name would never run.
func TestMakeTestAPIRunsEveryTestOfItsTag(t *testing.T) {
	found := 0
	for _, root := range []string{".", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.HasPrefix(string(text), "//go:build api\n") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
			if err != nil {
				return err
			}
			for _, name := range exported(file) {
				if found++; strings.HasPrefix(name, "Test") && !testOfAPI.MatchString(name) {
					t.Errorf("%s: make test-api never runs %s: it needs the prefix TestAPI", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no test of tag api: is the tag still right?")
	}
}

// pathInDocs matches paths of the repository in the inline code of Markdown.
var pathInDocs = regexp.MustCompile(
	"`((?:internal|cmd|proto|e2e|docs|packaging|tools)/[\\w./-]*\\w)`")

func TestDocsNamePathsThatExist(t *testing.T) {
	for _, doc := range []string{"ARCHITECTURE.md", "README.md", "docs/development.md"} {
		text, err := os.ReadFile(filepath.Join("..", doc))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, match := range pathInDocs.FindAllStringSubmatch(string(text), -1) {
			found++
			if match[1] == exampleFile {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", match[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", doc, match[1])
			}
		}
		if found == 0 && doc != "README.md" {
			t.Errorf("%s names no path at all: is the pattern still right?", doc)
		}
	}
}

// testInDocs matches names of tests in the inline code of Markdown, testInSource their functions.
var (
	testInDocs   = regexp.MustCompile("`(Test\\w+)`")
	testInSource = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
)

// TestDocsNameTestsThatExist: a promise of the documents that names its test is one only while that
// test is there.
func TestDocsNameTestsThatExist(t *testing.T) {
	tests := map[string]bool{}
	for _, root := range []string{".", "../cmd", "../e2e", "../proto"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range testInSource.FindAllStringSubmatch(string(text), -1) {
				tests[match[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, doc := range append(docs, "../ARCHITECTURE.md", "../README.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testInDocs.FindAllStringSubmatch(string(text), -1) {
			if named++; !tests[match[1]] {
				t.Errorf("%s names %s, which does not exist", doc, match[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("%d tests are named: is the pattern still right?", named)
	}
}

// exampleFile is the file that the development guide asks a reader to create.
const exampleFile = "internal/capi/example.go"

// TestDevelopmentGuideAddsAProvider does what "Add a provider" says, in an overlay of the source
// tree, and runs the tests of the table with it.
func TestDevelopmentGuideAddsAProvider(t *testing.T) {
	guide, err := os.ReadFile("../docs/development.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(guide), "   ```go\n")
	block, _, ends := strings.Cut(block, "   ```\n")
	if !found || !ends {
		t.Fatal("docs/development.md has no Go block")
	}
	change := regexp.MustCompile("(?m)^   -\t(.*)\n   \\+\t(.*)$").FindStringSubmatch(string(guide))
	projects, err := os.ReadFile("capi/project.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(change) != 3 || strings.Count(string(projects), change[1]) != 1 {
		t.Fatalf("the guide changes %q, which is not one line of internal/capi/project.go", change)
	}
	dir, overlay := t.TempDir(), map[string]map[string]string{"Replace": {}}
	for file, text := range map[string]string{
		"capi/example.go": strings.ReplaceAll(block, "\n   ", "\n"),
		"capi/project.go": strings.Replace(string(projects), change[1], change[2], 1),
	} {
		replaced, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][replaced] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(overlay["Replace"][replaced], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-overlay",
		filepath.Join(dir, "overlay.json"), // docs/providers.md does not have the example
		"-skip", "^TestProvidersDocumentIsUpToDate$", "./capi")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
