package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

const findingsDocument = "../../docs/findings.md"

const findingsIntro = `# Findings

<!-- Generated from internal/object and cmd/mgmtctl/hints.go by "make docs". Do not edit. -->

A finding is one result of a check. It has a severity, a code, the object or workload cluster that
it is about, a message, and often a hint. This page lists every code, by the work that reports it.

| severity | what it blocks |
|---|---|
| info | nothing |
| warning | nothing; read it before you go on |
| error | its workload cluster; the whole operation when the finding names none |
| fatal | the whole operation |

` + "`--force CODE`" + ` turns findings with that code into warnings, and
no others. The column "override" has the works that take the code, and how it is written; nothing
overrides the others. Override a finding only when you know that its reason does not apply.
`

// findingsText returns docs/findings.md.
func findingsText() string {
	var b strings.Builder
	b.WriteString(findingsIntro)
	for _, area := range object.Areas() {
		fmt.Fprintf(&b, "\n## %s\n\n| finding | severity | what it means | what to do | override |\n"+
			"|---|---|---|---|---|\n", area)
		for _, d := range object.Definitions() {
			if d.Area == area {
				writeDefinition(&b, d)
			}
		}
	}
	return b.String()
}

// commandWords match what is set in code type.
var commandWords = regexp.MustCompile(
	`mgmtctl( [a-z]+)+( [A-Z]{2,}(/[A-Z]+)?)*` +
		`( --[a-z-]+( no-mirror| store-away| LABELS| FILE| NAMESPACE/NAME)?)*|` +
		`--force [a-z-]+(=NAME)?|--[a-z-]+( [A-Z]{2,}| [a-z]+\.pub| age1\.\.\.| Kind\.group:path| latest)?`)

func writeDefinition(b *strings.Builder, d object.Definition) {
	var severities []string
	for _, s := range d.Severities {
		severities = append(severities, s.String())
	}
	next := d.Next
	for _, commands := range []string{findingCommands[d.Code], overrideCommands[d.Code]} {
		if commands != "" {
			next += " With mgmtctl: " + commandWords.ReplaceAllString(commands, "`$0`") + "."
		}
	}
	override := "no"
	var works []string
	for _, w := range []object.Work{object.Restores, object.Moves, object.Resumes, object.Rollbacks,
		object.Returns, object.Marks, object.Forgets} {
		if d.ForceableIn(w) {
			works = append(works, string(w))
		}
	}
	if len(works) > 0 {
		override = fmt.Sprintf("%s: `--force %s`", strings.Join(works, ", "), d.ForceWord())
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", d.Code, strings.Join(severities, " or "),
		d.Meaning,
		next, override)
}

// TestFindingsDocumentIsUpToDate compares docs/findings.md with the registry of codes; -update
// rewrites it.
func TestFindingsDocumentIsUpToDate(t *testing.T) {
	want := findingsText()
	if *update {
		if err := os.WriteFile(findingsDocument, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(findingsDocument)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the registry of codes says: run \"make docs\"", findingsDocument)
	}
}

// TestNoRunbookSaysToDeleteAnObject: see package object for the reason, and for the hints. What the
// garbage collector would delete is only reported.
func TestNoRunbookSaysToDeleteAnObject(t *testing.T) {
	for _, file := range []string{"outage.md", "move.md", "guide.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		words := strings.ReplaceAll(strings.ToLower(string(text)), "would delete", "")
		if regexp.MustCompile(`\bdelete\b`).MatchString(words) {
			t.Errorf("docs/%s says to delete something", file)
		}
	}
}

// TestTheRunbooksAreShort: somebody reads that of an outage at three in the morning, on one page.
// That of a move has two.
func TestTheRunbooksAreShort(t *testing.T) {
	for file, most := range map[string]int{"outage.md": 80, "move.md": 120} {
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > most {
			t.Errorf("docs/%s has %d lines", file, n)
		}
	}
}

// TestEveryCodeOfARunbookIsAFinding: what an operator reads in a runbook is what mgmtctl prints.
func TestEveryCodeOfARunbookIsAFinding(t *testing.T) {
	code := regexp.MustCompile("(?m)^\\| (`[a-z`, -]+`)")
	for _, file := range []string{"outage.md", "move.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(string(text), "\n## What can go wrong")
		rows := code.FindAllStringSubmatch(table, -1)
		if len(rows) < 3 {
			t.Errorf("docs/%s: %d rows name a finding", file, len(rows))
		}
		for _, m := range rows {
			for _, name := range strings.Split(strings.ReplaceAll(m[1], "`", ""), ", ") {
				if _, ok := object.Define(object.Code(name)); !ok {
					t.Errorf("docs/%s: %s is no finding", file, name)
				}
			}
		}
	}
}

// TestEveryCommandOfADocumentIsOne parses each command that a document asks its reader to type. The
// API tests of mgmtd type them.
func TestEveryCommandOfADocumentIsOne(t *testing.T) {
	block := regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	command := regexp.MustCompile(`\bmgmtctl ([^;|>&\n]+)`)
	for file, least := range map[string]int{"outage.md": 6, "move.md": 8, "guide.md": 15} {
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			for _, c := range command.FindAllStringSubmatch(b[1], -1) {
				words := strings.Fields(strings.ReplaceAll(c[1], "$target", "--target-kubeconfig t"))
				p := parsed(t, words)
				if n++; isGroup(p.current) {
					t.Errorf("docs/%s: %q is no command", file, c[0])
				} else if err := p.current.ValidateArgs(p.args); err != nil {
					t.Errorf("docs/%s: %q: %v", file, c[0], err)
				}
			}
		}
		if n < least {
			t.Errorf("docs/%s: only %d commands", file, n)
		}
	}
}
