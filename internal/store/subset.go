package store

import (
	"fmt"
	"strconv"
	"strings"
)

// Subset is one of several parts of the content of a store: a key belongs to the part that its
// hash names, whatever else is stored. So parts 1 to Of together contain every key, and each key is
// in one part only. The zero value contains every key.
type Subset struct {
	Part int // from 1 to Of
	Of   int
}

// MaxSubsets is the most parts there are. More parts than packs would make most of them empty.
const MaxSubsets = 100_000

// Check returns a *UsageError for a part that does not exist.
func (s Subset) Check() error {
	if s == (Subset{}) || s.Of >= 1 && s.Of <= MaxSubsets && s.Part >= 1 && s.Part <= s.Of {
		return nil
	}
	return &UsageError{Text: fmt.Sprintf("there is no part %d of %d", s.Part, s.Of),
		Tip: fmt.Sprintf("a subset is N/T, such as 3/7: N from 1 to T, T at most %d", MaxSubsets)}
}

// ParseSubset reads "3/7". It returns a *UsageError.
func ParseSubset(text string) (Subset, error) {
	part, of, ok := strings.Cut(text, "/")
	n, errPart := strconv.Atoi(part)
	t, errOf := strconv.Atoi(of)
	s := Subset{Part: n, Of: t}
	if !ok || errPart != nil || errOf != nil || s == (Subset{}) {
		return Subset{}, &UsageError{Text: fmt.Sprintf("%.40q is not a subset", text),
			Tip: "write N/T, such as 3/7 for the third of seven parts"}
	}
	return s, s.Check()
}

// String returns "3/7", or "" for the zero value.
func (s Subset) String() string {
	if s == (Subset{}) {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Part, s.Of)
}

// Contains reports whether a key belongs to the subset.
func (s Subset) Contains(k Key) bool {
	if s.Of <= 1 {
		return true
	}
	// 60 bits of a SHA-256: the parts are even, and Key has made sure that these are hex digits.
	hash, err := strconv.ParseUint(k.SHA256()[:15], 16, 64)
	return err != nil || hash%uint64(s.Of) == uint64(s.Part-1)
}
