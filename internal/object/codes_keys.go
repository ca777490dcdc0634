package object

// keyDefinitions are the codes of a check of keys.
func keyDefinitions() []Definition {
	return []Definition{
		{
			Code: CodeIdentityWrong, Area: AreaKeys, Severities: []Severity{Error},
			Meaning: "The identity does not open a snapshot: its content is encrypted to other " +
				"recipients. The message names them by their fingerprints.",
			Next: "Find the identity of one of these recipients. If there is none any more, the " +
				"snapshot is lost: take a new one, encrypted to a recipient whose identity you have.",
		},
		{
			Code: CodeRecipientMissing, Area: AreaKeys, Severities: []Severity{Error},
			Meaning: "The recipient of the identity is not among those whom the next snapshots are " +
				"encrypted to: the identity will not open them.",
			Next: "Add the recipient of the identity to the configuration, or check the identity that " +
				"belongs to the configured recipients.",
		},
	}
}
