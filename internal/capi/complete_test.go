package capi

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// dataLines returns the fields of each line of a file of testdata that is no comment.
func dataLines(t *testing.T, file string) [][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			lines = append(lines, fields)
		}
	}
	return lines
}

func kindNamed(name string) object.GroupKind {
	kind, group, _ := strings.Cut(name, ".")
	return object.GroupKind{Group: group, Kind: kind}
}

// TestRowsHaveEveryFieldThatNamesAnObject: a snapshot that misses one of these edges is restored
// without credentials, hosts or addresses.
func TestRowsHaveEveryFieldThatNamesAnObject(t *testing.T) {
	var rows *Table
	lines := dataLines(t, "references.txt")
	if len(lines) < 150 {
		t.Fatalf("only %d lines", len(lines))
	}
	for _, line := range lines {
		kind, path, to, rule := kindNamed(line[0]), line[1], line[2], ""
		if len(line) > 3 {
			rule = line[3]
		}
		if !slices.ContainsFunc(rows.Row(kind).Refs, func(r Reference) bool {
			field := r.Path + r.Suffix
			if r.Name != "" {
				field = "name:" + r.Name
			}
			named := to == "*" || slices.Contains(r.kinds(), kindNamed(to)) ||
				strings.HasPrefix(to, "*.") && r.To == object.GroupKind{Group: to[2:]}
			return field == path && named && r.Back == (rule == "back") &&
				(rule == "back" || r.Controller == rule)
		}) {
			t.Errorf("%s: no edge by %s to %s %s", kind, path, to, rule)
		}
		if !rows.Known(kind) {
			t.Errorf("%s is captured by its labels alone", kind)
		}
	}
}

func TestRowsHaveTheSwitchOfEachKind(t *testing.T) {
	var rows *Table
	for _, line := range dataLines(t, "switches.txt") {
		kind := kindNamed(line[0])
		row := rows.Row(kind)
		if row.Pause.String() != line[1] {
			t.Errorf("%s is paused by %s, want %s", kind, row.Pause, line[1])
		}
		if !row.Pause.Supported() && row.ByHand == "" {
			t.Errorf("%s cannot be paused, and nothing says what to do by hand", kind)
		}
	}
}

// TestEveryKindThatCannotBePausedSaysWhatToDo: it blocks a workload cluster.
func TestEveryKindThatCannotBePausedSaysWhatToDo(t *testing.T) {
	for _, p := range Projects() {
		for _, row := range p.Rows {
			if (!row.Pause.Supported() || row.PauseNeeds != "") && row.ByHand == "" {
				t.Errorf("%s of %s", row.GroupKind, p.Name)
			}
		}
	}
}
