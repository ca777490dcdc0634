package keys

import "fmt"

// Error says that content cannot be read with the identities at hand, or that a key is none.
type Error struct {
	Object string // the key in the store, or the file
	Reason string
	Tip    string // what to do where that is not about an identity
}

func (e *Error) Error() string { return fmt.Sprintf("open %s: %s", e.Object, e.Reason) }

// Hint says what an operator can do.
func (e *Error) Hint() string {
	if e.Tip != "" {
		return e.Tip
	}
	return "give an identity file (--identity) that belongs to one of the recipients the snapshot " +
		"was written to"
}

// TrustError says that an envelope or a record is not signed by a trusted key.
type TrustError struct {
	Key   string
	Trust Trust
	KeyID string // who signed it, if anyone did
}

func (e *TrustError) Error() string {
	switch e.Trust {
	case Unsigned:
		return fmt.Sprintf("check signature of %s: it is not signed", e.Key)
	case Unchecked:
		return fmt.Sprintf("check signature of %s: signed by key %s, no trusted keys to check it with",
			e.Key, e.KeyID)
	default:
		return fmt.Sprintf("check signature of %s: signed by key %s, which is not trusted", e.Key,
			e.KeyID)
	}
}

// Hint says what an operator can do.
func (e *TrustError) Hint() string {
	if e.Trust == Unsigned {
		return "somebody took its signature away, or it was taken without --signing-key: use another " +
			"snapshot, and look at the access log of the store"
	}
	return "give the public key of the mgmtd that wrote it (--trusted-key signing.pub), after " +
		"checking that it is the right one"
}
