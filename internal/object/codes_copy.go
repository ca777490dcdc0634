package object

// The codes about copies of a store.
const (
	CodeNotCopied         Code = "not-copied"
	CodeCopyWaits         Code = "copy-waits"
	CodeCopyDiffers       Code = "copy-differs"
	CodeOwnershipFromCopy Code = "ownership-from-copy"
)

// copyDefinitions are the codes about copies of a store.
func copyDefinitions() []Definition {
	return []Definition{
		{
			Code: CodeNotCopied, Area: AreaCopy, Severities: []Severity{Error, Warning},
			Meaning: "A snapshot of the origin is not in the copy. As an error: it is damaged in the " +
				"origin, or something that it names is missing there. As a warning: no trusted key " +
				"signed its envelope, or it is of another store, or it cannot be read and nothing says that " +
				"it was ever a snapshot. A run names ten of each.",
			Next: "Verify the snapshot in the origin, and repair it. A later copy run tries it again.",
		},
		{
			Code: CodeCopyWaits, Area: AreaCopy, Severities: []Severity{Warning},
			Meaning: "A prune of the copy may be about to remove something that the snapshot names, " +
				"which an earlier run or a snapshot that is gone left there.",
			Next: "Copy once more in half an hour.",
		},
		{
			Code: CodeCopyDiffers, Area: AreaCopy, Severities: []Severity{Error},
			Meaning: "The copy has other bytes under a name than the origin: they are damaged, or " +
				"somebody wrote them. The snapshots that need them are not copied.",
			Next: "Find out who wrote to the copy. Repair the key in the copy, or make another copy in " +
				"an empty place.",
		},
		{
			Code: CodeOwnershipFromCopy, Area: AreaCopy, Severities: []Severity{Error, Warning},
			Forceable: true, ForcedIn: Restores,
			Meaning: "The store is a copy. Who owns the workload clusters is recorded in its origin, so " +
				"that a restore from the copy does not see it. With the override the restore records " +
				"ownership in the copy, for other restores from there. The risk: a workload cluster that " +
				"was moved meanwhile is released in two management clusters.",
			Next: "Restore from the origin. Override this only when the origin is lost, and nothing else " +
				"works on these workload clusters.",
		},
	}
}
