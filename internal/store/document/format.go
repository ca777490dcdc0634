package document

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Format is the version of the format that this package writes, and the only one it reads.
const Format = 1

// FormatOf reads the version of the format, the one field that every document of every version has.
func FormatOf(data []byte) (int, error) {
	var v struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return 0, errors.New("not our JSON")
	}
	if v.Format == nil || *v.Format < 1 {
		return 0, errors.New("no format version in it")
	}
	return *v.Format, nil
}

// FormatError says that mgmtd.json or an envelope was written in a format that this version does
// not know, or that what is in the bucket is no store at all. Open, GetEnvelope.
type FormatError struct {
	Key    string
	Format int    // the version found; 0 when there is none
	Reason string // set when Format is 0
	// Trusted is set when a trusted key signed the document, so that nobody made up its format.
	Trusted bool
}

func (e *FormatError) Error() string {
	if e.Format == 0 {
		return fmt.Sprintf("read %s: not an mgmtd store: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("read %s: format %d is not known, this version reads format %d", e.Key,
		e.Format, Format)
}

// Hint says what an operator can do.
func (e *FormatError) Hint() string {
	if e.Format == 0 {
		return "check the store's URL; if it is the right place, restore " + layout.MarkerKey +
			" from a copy of the store; a new store needs an empty place"
	}
	return "use a newer version: this store was written by one"
}

// HintKey names the option for the place of a store.
func (e *FormatError) HintKey() object.HintKey {
	if e.Format == 0 {
		return object.HintStoreURL
	}
	return ""
}
