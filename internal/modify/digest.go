package modify

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"golang.org/x/crypto/scrypt"

	"github.com/mgmtd/mgmtd/internal/object"
)

// The cost of a digest: about 0.1 s and 32 MiB (the parameters that golang.org/x/crypto/scrypt
// recommends for interactive use).
const (
	digestN = 1 << 15
	digestR = 8
	digestP = 1
)

// Digest identifies what the document says, whatever its comments and its layout. It is stored in
// plans, which hold no secret: a plain hash would confirm a guess at a password in the document, so
// it is one that makes guesses expensive, and that differs by target. The digest of no document is
// "".
func (d *Document) Digest(target string) string {
	if d == nil {
		return ""
	}
	text, err := json.Marshal(d.text)
	if err != nil {
		panic(fmt.Sprintf("encode resource modifiers: %v", err)) // plain data always encodes
	}
	key, err := scrypt.Key(text, []byte("mgmtd resource modifiers "+target), digestN, digestR, digestP,
		32)
	if err != nil {
		panic(fmt.Sprintf("hash resource modifiers: %v", err)) // the parameters are constants
	}
	return hex.EncodeToString(key)
}

// Check returns a *MismatchError unless the document has this digest for a target.
func (d *Document) Check(digest, target string) error {
	switch {
	case digest == "" && d == nil:
		return nil
	case digest == "":
		return &MismatchError{Unplanned: true}
	case d == nil:
		return &MismatchError{Missing: true}
	case d.Digest(target) != digest:
		return &MismatchError{}
	}
	return nil
}

// MismatchError says that the resource modifiers are not those that something was planned with.
type MismatchError struct {
	Missing   bool // none were given
	Unplanned bool // the plan has none
}

func (e *MismatchError) Error() string {
	switch {
	case e.Missing:
		return "it was planned with resource modifiers, which are not stored, since they may hold " +
			"credentials, and none were given"
	case e.Unplanned:
		return "it was planned without resource modifiers, and some were given"
	}
	return "these are not the resource modifiers that it was planned with"
}

// Hint says what to do next.
func (e *MismatchError) Hint() string {
	if e.Unplanned {
		return "leave them out; to change objects on their way to the target, plan again"
	}
	return "give the document that it was planned with"
}

// HintKey names the option that gives the document.
func (e *MismatchError) HintKey() object.HintKey {
	if e.Unplanned {
		return ""
	}
	return object.HintResourceModifiers
}
