package keys

// Signature is what is known of who signed a document.
type Signature struct {
	Trust Trust
	// KeyID is that of the key that signed, as minisign prints it; a claim unless Trust is Trusted or
	// Limited.
	KeyID string
	// Limit says why the trusted key does not count for the document, when Trust is Limited.
	Limit string

	by *trustedKey // nil unless a trusted key signed
	// provable is set when the envelope counts if it is a predecessor of a snapshot of source that
	// the limits name.
	provable bool
	source   string
}

// Equal reports whether two signatures say the same.
func (s Signature) Equal(o Signature) bool {
	return s.Trust == o.Trust && s.KeyID == o.KeyID && s.Limit == o.Limit
}

// For returns the signature as that of a document with a claim. The signature of a key with limits
// is Limited without it.
func (s Signature) For(c Claim) Signature {
	if s.by == nil || !s.by.limits.any() {
		return s
	}
	s.Trust = Trusted
	if s.Limit, s.provable = s.by.limits.refuse(c); s.Limit != "" {
		s.Trust = Limited
	}
	if s.provable {
		s.source = c.Sources[0]
	}
	return s
}

// Heads returns the snapshots of which the envelope must be a predecessor to be trusted, by the
// hashes that envelopes have of their parents; none when that does not help.
func (s Signature) Heads() (heads []LastTrusted) {
	if !s.provable {
		return nil
	}
	for _, t := range s.by.limits.LastTrusted {
		if t.Source == s.source {
			heads = append(heads, t)
		}
	}
	return heads
}

// Proven returns the signature of an envelope that is a predecessor of one of its Heads.
func (s Signature) Proven() Signature {
	if s.provable {
		s.Trust, s.Limit, s.provable = Trusted, "", false
	}
	return s
}

// Require returns a *TrustError about the document under key unless a trusted key signed it.
func (s Signature) Require(key string) error {
	if s.Trust == Trusted {
		return nil
	}
	return s.Untrusted(key)
}

// Untrusted returns the error about a document that does not count.
func (s Signature) Untrusted(key string) *TrustError {
	return &TrustError{Key: key, Trust: s.Trust, KeyID: s.KeyID, Limit: s.Limit}
}
