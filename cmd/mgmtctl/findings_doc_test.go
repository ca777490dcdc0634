package main

import (
	"fmt"
	"os"
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

Findings marked **yes** under "override" can be overridden with ` + "`--force`" + `, which turns
the error into a warning or leaves it out. Override a finding only when you know that its reason
does not apply. No other finding can be overridden.
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
	`mgmtctl( [a-z]+)+( [A-Z]+)?( --[a-z-]+)?|--[a-z-]+( [A-Z]+| [a-z]+\.pub| latest)?`)

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
	if d.Forceable {
		override = "**yes**"
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
