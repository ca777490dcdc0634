package config

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	// Line in the file, from 1; 0 when it is about no line.
	Line int
	// Document is the kind and the name of the document, empty when it is about the whole file.
	Document string
	// Field is the path of the field, such as spec.template.ttl; empty when it is about the whole
	// document.
	Field string
	// Text says what is wrong, Hint what to do.
	Text, Hint string
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	for _, part := range []string{p.Document, p.Field} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(p.Text)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// InvalidError holds all that is wrong with a file.
type InvalidError struct {
	File     string
	Problems []Problem
}

// Error has a line for each problem.
func (e *InvalidError) Error() string {
	lines := make([]string, 0, 1+len(e.Problems))
	lines = append(lines, fmt.Sprintf("read configuration %s: %d things are wrong:", e.File,
		len(e.Problems)))
	if len(e.Problems) == 1 {
		lines[0] = fmt.Sprintf("read configuration %s: one thing is wrong:", e.File)
	}
	for _, p := range e.Problems {
		lines = append(lines, filepath.Base(e.File)+": "+p.String())
	}
	return strings.Join(lines, "\n")
}

func (r *reader) add(p Problem) { r.problems = append(r.problems, p) }
