package keys

import (
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Error says that content cannot be read with the given identities, or that a key is not valid.
type Error struct {
	Object string // the key in the store, or the file
	Reason string
	// Tip is what to do where that is not to give a fitting identity, and TipKey the key of that
	// hint.
	Tip    string
	TipKey object.HintKey
}

func (e *Error) Error() string { return fmt.Sprintf("open %s: %s", e.Object, e.Reason) }

// Hint says what an operator can do.
func (e *Error) Hint() string {
	if e.Tip != "" {
		return e.Tip
	}
	return "give an identity file that belongs to one of the recipients the snapshot was written to"
}

// HintKey names the option that belongs to the hint.
func (e *Error) HintKey() object.HintKey {
	if e.Tip != "" {
		return e.TipKey
	}
	return object.HintIdentity
}

// TrustError says that an envelope or a record is not signed by a trusted key.
type TrustError struct {
	Key   string
	Trust Trust
	KeyID string // who signed it, if anyone did
	Limit string // of a key with limits: why it does not count for this
}

func (e *TrustError) Error() string {
	switch e.Trust {
	case Unsigned:
		return fmt.Sprintf("check signature of %s: it is not signed", e.Key)
	case Unchecked:
		return fmt.Sprintf("check signature of %s: signed by key %s, no trusted keys to check it with",
			e.Key, e.KeyID)
	case Limited:
		return fmt.Sprintf("check signature of %s: signed by key %s, %s", e.Key, e.KeyID, e.Limit)
	default:
		return fmt.Sprintf("check signature of %s: signed by key %s, which is not trusted", e.Key,
			e.KeyID)
	}
}

// Hint says what an operator can do.
func (e *TrustError) Hint() string {
	if e.Trust == Unsigned {
		return "somebody took its signature away, or it was taken without a signing key: use another " +
			"snapshot, and check the access log of the store"
	}
	if e.Trust == Limited {
		return "find out who has that key: it signed something that its limits do not allow; if it is " +
			"right, change the limits of the trusted key (docs/keys.md)"
	}
	return "give the public key of the mgmtd that wrote it, after checking that it is the right one"
}

// HintKey names the option for trusted keys.
func (e *TrustError) HintKey() object.HintKey {
	if e.Trust == Unsigned {
		return ""
	}
	return object.HintTrustedKey
}
