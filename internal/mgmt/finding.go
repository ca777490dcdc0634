package mgmt

import "fmt"

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

// Finding is one result of a check. Message and Hint never hold content of Secrets.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`
	Ref      Ref      `json:"ref,omitzero"`
	// "namespace/name" of the workload cluster, empty when it concerns all
	Unit    string `json:"unit,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
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
