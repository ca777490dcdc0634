package object

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Work is the work whose findings an operator overrides.
type Work string

// The works with findings that can be overridden.
const (
	Restores Work = "restore"
	Moves    Work = "move"
	Resumes  Work = "resume"
	// Rollbacks have the codes of Resumes.
	Rollbacks Work = "rollback"
	// Returns is a rollback without the target. It has the codes of Resumes, too.
	Returns Work = "rollback without the target"
	Marks   Work = "rollback from marks"
	Forgets Work = "forget"
)

// Forced is the set of codes whose findings the operator overrides. Stored plans hold it. The
// value is the name that the override of some codes has (Definition.ForceName), and empty for
// others.
type Forced map[Code]string

// ForceableIn reports whether findings with the code can be overridden in a work.
func (d Definition) ForceableIn(w Work) bool {
	only := d.ForcedIn
	switch {
	case d.Area == AreaMove && only == "":
		only = Moves
	case d.Area == AreaMarks:
		only = Marks
	case d.Area == AreaForget:
		only = Forgets
	}
	return d.Forceable && (only == w || only == Resumes && (w == Rollbacks || w == Returns) ||
		only == "" && (w == Restores || w == Moves))
}

// Forceable returns what an operator can override in a work, in the form that ParseForced reads.
func Forceable(w Work) []string {
	var words []string
	for _, d := range Definitions() {
		if d.ForceableIn(w) {
			words = append(words, d.ForceWord())
		}
	}
	slices.Sort(words)
	return words
}

// ForceWord is what an operator types to override the findings with the code.
func (d Definition) ForceWord() string {
	if d.ForceName {
		return string(d.Code) + "=NAME"
	}
	return string(d.Code)
}

// ParseForced reads what an operator overrides in a work: codes, of which some need a name
// ("owned-elsewhere=NAME").
func ParseForced(w Work, texts []string) (Forced, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	forced := Forced{}
	for _, text := range texts {
		code, name, named := strings.Cut(text, "=")
		d, ok := Define(Code(code))
		if !ok || !d.ForceableIn(w) {
			return nil, fmt.Errorf("override %q: a %s can override %s", code, w,
				strings.Join(Forceable(w), ", "))
		}
		if d.ForceName != named || named && name == "" {
			return nil, fmt.Errorf("override %q: want %s", text, d.ForceWord())
		}
		if other, ok := forced[d.Code]; ok && other != name {
			return nil, fmt.Errorf("override %s: %s and %s exclude each other", code, other, name)
		}
		forced[d.Code] = name
	}
	return forced, nil
}

// forceAll returns every code that can be overridden, which is what the boolean in plans of
// version 0.3 and older means.
func forceAll() Forced {
	forced := Forced{}
	for _, d := range Definitions() {
		if d.Forceable {
			forced[d.Code] = ""
		}
	}
	return forced
}

// Has reports whether findings with this code are overridden.
func (f Forced) Has(code Code) bool {
	_, ok := f[code]
	return ok
}

// HasFor reports whether findings with this code are overridden for one management cluster: the
// override has its name or its UID. An override of version 0.3 and older has no name and is for
// any.
func (f Forced) HasFor(code Code, mgmt Side) bool {
	name, ok := f[code]
	return ok && (name == "" || name == mgmt.Name || name == mgmt.UID)
}

// MarshalJSON writes the list that ParseForced reads, in order: digests of plans contain it.
func (f Forced) MarshalJSON() ([]byte, error) {
	texts := make([]string, 0, len(f))
	for code, name := range f {
		if name != "" {
			code += Code("=" + name)
		}
		texts = append(texts, string(code))
	}
	slices.Sort(texts)
	return json.Marshal(texts)
}

// UnmarshalJSON reads the list of MarshalJSON, or the boolean that plans of version 0.3 and older
// hold: true overrode everything that can be.
func (f *Forced) UnmarshalJSON(text []byte) error {
	*f = nil
	var all bool
	if err := json.Unmarshal(text, &all); err == nil {
		if all {
			*f = forceAll()
		}
		return nil
	}
	var texts []string
	if err := json.Unmarshal(text, &texts); err != nil {
		return fmt.Errorf("parse forced codes: %w", err)
	}
	*f = Forced{}
	for _, text := range texts {
		code, name, _ := strings.Cut(text, "=")
		(*f)[Code(code)] = name
	}
	return nil
}

// Override returns a finding as the overrides leave it: an error that is overridden is a warning,
// and says so. A code with a name is overridden by its check, which knows whom it is about.
func (f Forced) Override(finding Finding) Finding {
	d, _ := Define(finding.Code)
	if finding.Severity >= Error && f.Has(finding.Code) && d.Forceable && !d.ForceName {
		finding.Severity = Warning
		finding.Message += " (overridden)"
	}
	return finding
}
