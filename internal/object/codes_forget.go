package object

// forgetDefinitions are the codes of an operation that is to be forgotten.
func forgetDefinitions() []Definition {
	return []Definition{
		{
			Code: CodeWorkLeft, Area: AreaForget, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The restore or the move changed something and is not at its end. Once it is " +
				"forgotten, nothing resumes it or rolls it back, and prunes do not retain its snapshot for " +
				"it. What it paused stays paused, and what it created stays.",
			Next: "Resume the operation or roll it back. Override this only when you have put the " +
				"workload clusters in order by hand.",
		},
		{
			Code: CodeNotRetired, Area: AreaForget, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The workload cluster was handed over, and its copy on the source was not retired. " +
				"Once the move is forgotten, only the fence of the source and the pause of that copy keep " +
				"two management clusters apart.",
			Next: "Resume the move, which retires the copy. Override this only when the source is gone " +
				"for good, or the copy is not there any more.",
		},
		{
			Code: CodeMirrorOpen, Area: AreaForget, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The mirror of the operation in the store cannot be ended: the store takes no " +
				"records. Other hosts then still show the operation and may resume it, a rebuild of the " +
				"catalog imports it again, and its snapshot stays in use.",
			Next: "Make the store writable and give a recipient and the signing key.",
		},
	}
}
