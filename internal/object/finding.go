package object

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Severity says what a finding blocks.
type Severity int

// Info blocks nothing, neither does Warning; Error blocks its unit, or the operation when it names
// none; Fatal blocks the operation.
const (
	Info Severity = iota + 1
	Warning
	Error
	Fatal
)

// String gives the lower-case word.
func (s Severity) String() string {
	switch s {
	case Info:
		return "info"
	case Warning:
		return "warning"
	case Error:
		return "error"
	case Fatal:
		return "fatal"
	default:
		return fmt.Sprintf("severity(%d)", int(s))
	}
}

// ParseSeverity is the inverse of Severity.String.
func ParseSeverity(s string) (Severity, error) {
	for _, severity := range []Severity{Info, Warning, Error, Fatal} {
		if severity.String() == s {
			return severity, nil
		}
	}
	return 0, fmt.Errorf("parse severity %q: want info, warning, error or fatal", s)
}

// MarshalText gives the lower-case word, so that stored plans and events are readable.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON reads the lower-case word, or the number that plans of version 0.3 and older hold.
func (s *Severity) UnmarshalJSON(text []byte) error {
	var number int
	if err := json.Unmarshal(text, &number); err == nil {
		*s = Severity(number)
		return nil
	}
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return fmt.Errorf("parse severity: %w", err)
	}
	severity, err := ParseSeverity(word)
	if err != nil {
		return err
	}
	*s = severity
	return nil
}

// Finding is one result of a check. Message and Hint never hold content of Secrets.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	Ref      Ref      `json:"ref,omitzero"`
	// Unit is "namespace/name" of the workload cluster, empty when the finding concerns all.
	Unit string `json:"unit,omitempty"`
	// Users are the other units that it concerns, when it is about an object that several share:
	// one finding for all of them, since there may be thousands.
	Users   []string `json:"users,omitempty"`
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`
}

// Concerns reports whether the finding is about a unit, or about all.
func (f Finding) Concerns(unit string) bool {
	return f.Unit == "" || f.Unit == unit || slices.Contains(f.Users, unit)
}

// String gives one line for people.
func (f Finding) String() string {
	s := fmt.Sprintf("%s %s: %s", f.Severity, f.Code, f.Message)
	if !f.Ref.IsZero() {
		s = fmt.Sprintf("%s %s: %s: %s", f.Severity, f.Code, f.Ref, f.Message)
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}
