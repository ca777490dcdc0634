package object

// marksDefinitions are the codes of a rollback from marks.
func marksDefinitions() []Definition {
	return []Definition{
		{
			Code: CodeCopyAtWork, Area: AreaMarks, Severities: []Severity{Error},
			Meaning: "The Cluster has the mark of a paused copy, but controllers of this management " +
				"cluster may work on it, or have worked on it: it is not paused, its pause was changed " +
				"since its creation, or an ownership record names this management cluster.",
			Next: "Leave it: the workload cluster may have no other management cluster. Find out which " +
				"one reconciles it; if that is another one, fence it here.",
		},
		{
			Code: CodeCopyHeld, Area: AreaMarks, Severities: []Severity{Error},
			Meaning: "The Cluster is the source of a move, which holds its lock, or it is fenced. It is " +
				"no copy.",
			Next: "Resume the move or roll it back where its catalog is. Lift the fence when the workload " +
				"cluster belongs here.",
		},
		{
			Code: CodeCopyUnproven, Area: AreaMarks, Severities: []Severity{Error},
			Meaning: "Nothing proves that the Cluster is a copy that was never released. It has no mark " +
				"of the operation that created it, and either the id of its workload cluster is its own " +
				"UID, or the ownership records were not read.",
			Next: "Name the store of the restore or the move, so that its ownership records are read.",
		},
		{
			Code: CodeOperationKnown, Area: AreaMarks, Severities: []Severity{Error},
			Meaning: "The operation that made the copy is not lost: it is in the catalog, or a mirror in " +
				"the store has it.",
			Next: "Roll that operation back. Its journal knows more than marks do.",
		},
		{
			Code: CodeOwnersUnread, Area: AreaMarks, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The ownership records cannot be read, or that of a workload cluster does not count. " +
				"They are what shows that a copy was released. The risk of an override: a workload " +
				"cluster that was released here and was paused again since loses its only management.",
			Next: "Name the store of the restore or the move. Override it only when that store is lost, " +
				"and you know that no workload cluster of the plan was ever released here.",
		},
		{
			Code: CodeObjectStays, Area: AreaMarks, Severities: []Severity{Info, Warning},
			Meaning: "The object stays on the management cluster: nothing proves that a restore or a move " +
				"created it, or others need it. It is a warning for one that belongs to a workload " +
				"cluster which is removed.",
			Next: "Find out who made it.",
		},
	}
}
