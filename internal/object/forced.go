package object

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Forced is the set of codes whose findings the operator overrides. Stored plans hold it.
type Forced []Code

// ForceAll returns every code that can be overridden, the meaning of a bare --force.
func ForceAll() Forced {
	var forced Forced
	for _, d := range Definitions() {
		if d.Forceable {
			forced = append(forced, d.Code)
		}
	}
	return forced
}

// Has reports whether findings with this code are overridden.
func (f Forced) Has(code Code) bool { return slices.Contains(f, code) }

// UnmarshalJSON reads a list of codes, or the boolean that plans of version 0.3 and older hold:
// true overrode everything that can be.
func (f *Forced) UnmarshalJSON(text []byte) error {
	var all bool
	if err := json.Unmarshal(text, &all); err == nil {
		*f = nil
		if all {
			*f = ForceAll()
		}
		return nil
	}
	var codes []Code
	if err := json.Unmarshal(text, &codes); err != nil {
		return fmt.Errorf("parse forced codes: %w", err)
	}
	*f = codes
	return nil
}
