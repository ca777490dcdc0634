package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// writeFindings writes findings grouped by severity, the worst first, then by code. A hint that
// several findings of a code share is written once.
func writeFindings(w io.Writer, findings []*mgmtv1.Finding) {
	findings = slices.Clone(findings)
	slices.SortStableFunc(findings, func(a, b *mgmtv1.Finding) int {
		return cmp.Or(
			cmp.Compare(b.GetSeverity(), a.GetSeverity()),
			strings.Compare(a.GetCode(), b.GetCode()),
			strings.Compare(a.GetHint(), b.GetHint()),
			strings.Compare(a.GetUnit(), b.GetUnit()),
			strings.Compare(refText(a.GetRef()), refText(b.GetRef())),
		)
	})
	for i, f := range findings {
		if i == 0 || findings[i-1].GetSeverity() != f.GetSeverity() {
			n := 0
			for _, other := range findings {
				if other.GetSeverity() == f.GetSeverity() {
					n++
				}
			}
			fmt.Fprintf(w, "%s (%d)\n", strings.ToUpper(word(f.GetSeverity(), "SEVERITY_")), n)
		}
		fmt.Fprintf(w, "  %s\n", findingText(f))
		last := i+1 == len(findings) || findings[i+1].GetHint() != f.GetHint() ||
			findings[i+1].GetCode() != f.GetCode() ||
			findings[i+1].GetSeverity() != f.GetSeverity()
		if last && f.GetHint() != "" {
			fmt.Fprintf(w, "    hint: %s\n", f.GetHint())
		}
	}
}

// findingText is a finding without its severity and hint.
func findingText(f *mgmtv1.Finding) string {
	var b strings.Builder
	b.WriteString(f.GetCode())
	if f.GetRef() != nil {
		b.WriteString(" " + refText(f.GetRef()))
	}
	if f.GetUnit() != "" {
		b.WriteString(" [" + f.GetUnit() + "]")
	}
	b.WriteString(": " + f.GetMessage())
	return b.String()
}
