package object

// moveDefinitions are the codes of the pre-flight of moves, and of what restores and moves report
// while they run.
func moveDefinitions() []Definition { //nolint:funlen // a table
	return []Definition{
		{
			Code: CodeNoFence, Area: AreaPlan, Severities: []Severity{Fatal, Warning},
			Meaning: "Ownership records cannot be written: the store does not honour " +
				"conditional writes, or there is no signing key. A source that comes back does " +
				"not find out that it lost its workload clusters.",
			Next: "Use a store that honours conditional writes, and a signing key.",
		},
		{
			Code: CodeNoMirror, Area: AreaMove, Severities: []Severity{Warning}, Forceable: true,
			ForcedIn: Resumes,
			Meaning: "The journal is not mirrored into the store: it cannot be written to, does not " +
				"honour conditional writes, or there is no recipient or signing key. If the host and its " +
				"catalog are lost in the middle, no other host can go on.",
			Next: "Make the store writable and give a recipient and the signing key, or have a copy of " +
				"the catalog. An operation that has a mirror goes on without it only when you override " +
				"this, on the host that wrote its newest record. See that no other host takes it over then.",
		},
		{
			Code: CodeIDNotUnique, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "Two Clusters have the same mgmtd.dev/workload-id annotation.",
			Next:    "The annotation was copied with a manifest: remove it from the copy.",
		},
		{
			Code: CodeLocked, Area: AreaMove, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "Another operation works on the workload cluster, or died there. A free " +
				"BareMetalHost that it has paused is left out.",
			Next: "Resume that operation or roll it back, from its mirror in the store when its host is " +
				"lost. Override this only when the mirror is lost as well.",
		},
		{
			Code: CodePoolShared, Area: AreaMove, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "An address pool also serves workload clusters that stay, or that a restore leaves " +
				"out. The same address could be handed out twice. A restore keeps such a pool paused, and " +
				"does not create one that has no pause. A move that leaves one of them on the source " +
				"keeps it paused on the target, unless the finding is overridden. An address that belongs to " +
				"no workload cluster counts as a user as well. It is a warning where users are blocked: once " +
				"others have moved, the pool is paused on both sides.",
			Next: "Move or restore all users of the pool together, or give them pools of their own.",
		},
		{
			Code: CodeGCWouldCascade, Area: AreaMove, Severities: []Severity{Error},
			Meaning: "An object that stays on a management cluster is owned by one that is removed " +
				"there. The garbage collector would delete it.",
			Next: "Move it along (label clusterctl.cluster.x-k8s.io/move on it or its CRD), or " +
				"remove the owner reference.",
		},
		{
			Code: CodeAPIDead, Area: AreaMove, Severities: []Severity{Warning},
			Meaning: "An API of the management cluster does not answer, so its objects could " +
				"not be searched for owner references.",
			Next: "Repair or remove its APIService.",
		},
		{
			Code: CodeUnitFailed, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "The workload cluster did not finish. The message has the cause.",
			Next:    "Remove the cause, then resume the operation.",
		},
		{
			Code: CodeSharedFailed, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "An object that workload clusters share, such as a namespace or a " +
				"ClusterClass, was not created, differs, or is not reconciled. The workload " +
				"clusters that need it are blocked, and no others.",
			Next: "Remove the cause, then resume the operation: it retries this object and the " +
				"workload clusters that need it.",
		},
		{
			Code: CodeNotPaused, Area: AreaRun, Severities: []Severity{Error, Warning},
			Meaning: "An object of the source is not paused although its pause was acknowledged " +
				"before, or it is new. A free BareMetalHost is left out then, with a warning.",
			Next: "Move its workload cluster again.",
		},
		{
			Code: CodePauseEnded, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "Somebody unpaused the Cluster on the source after its hand-over. The move " +
				"paused it again.",
			Next: "Search for a GitOps controller that applies it, and for what both management " +
				"clusters did meanwhile.",
		},
		{
			Code: CodeChangedLate, Area: AreaRun, Severities: []Severity{Error, Warning},
			Meaning: "Somebody wrote the spec, labels, annotations or data of an object on the source " +
				"after the comparison that precedes the hand-over, and the target does not have that. Or " +
				"an object that stays on the source has come to use one of the workload cluster. That " +
				"works on the target; what is left of it on the source stays there, paused. It is a " +
				"warning for one that the operator accepted, which is removed.",
			Next: "Make the change on the target as well, or take it back on the source, or give what " +
				"stays there an object of its own, and resume the operation. Where nothing that stays uses " +
				"it, you can accept the workload cluster: the next resume removes it on the source. " +
				"Find out who wrote it: a user, or a tool that still applies to the source.",
		},
		{
			Code: CodeNotOnTarget, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "The workload cluster was well on the target after its release, and is not there any " +
				"more, or is paused there by an operation, or is another one. Its copy on the source stays, " +
				"paused: it may be the only one that is left.",
			Next: "Find out what happened on the target: a restore of its etcd from an older backup, " +
				"somebody who deleted the Cluster, or another operation, which has to end first. When the " +
				"target has lost it, bring it to work on the source again as `docs/move.md` says for a " +
				"target that is gone for good. When it was deleted on purpose, forget the operation: its " +
				"copy on the source is harmless as long as nobody unpauses it. When it is another Cluster " +
				"that is right, such as one that was restored there, accept it, and resume.",
		},
		{
			Code: CodeNotWorking, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "A Cluster was given back on the source, but its controllers have not " +
				"reconciled it yet.",
			Next: "Read the logs of the controllers of the source.",
		},
		{
			Code: CodeDeletedOnSource, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "Somebody deleted the workload cluster on the source after the move was planned. It " +
				"is not moved, and what was copied of it alone is removed from the target. Or somebody " +
				"deleted objects of it there after its hand-over, which the target has.",
			Next: "Nothing. If that was a mistake, restore it from a snapshot. If it was meant, make the " +
				"same change on the target.",
		},
		{
			Code: CodeCreatedOnSource, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "Somebody created an object with the label of a workload cluster on the source after " +
				"its snapshot. It is not moved and not removed: it stays on the source, where its workload " +
				"cluster is not any more.",
			Next: "Create it on the target if it is needed, and remove it from the source. Find out who " +
				"created it: a user, or a tool that still applies to the source.",
		},
		{
			Code: CodeSharedKept, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "A shared object stays on the source although nothing there needs it, " +
				"because it differs from its copy or changed. Or a copy stays on the target after a " +
				"rollback: a BareMetalHost that is at work there, or that another object there names. Or it " +
				"stays there as it is, since the workload clusters that it was copied for are not moved any " +
				"more. Or it was not copied at all, for that reason or since its pre-flight left it out. Or " +
				"it stays paused on the source, since the target was not asked for its copy. Or, in a " +
				"restore, it stays paused on the target, since the management cluster that has another " +
				"workload cluster there works with it.",
			Next: "Compare both. It does no harm on the source: nothing there uses it, and a " +
				"BareMetalHost that was copied is paused there. A rollback that reaches the target unpauses " +
				"it.",
		},
		{
			Code: CodeSharedGone, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "A shared object that was copied is gone from the target before it was released. " +
				"The others are released all the same.",
			Next: "Find out what removed it, and create it again if workload clusters need it.",
		},
		{
			Code: CodeMaxPause, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "A workload cluster was paused on the source for as long as a move may pause it, and " +
				"was not handed over. It is given back to the source; its copy is removed from the target.",
			Next: "Find out what takes so long: controllers that do not acknowledge a pause, a slow " +
				"store, an API server that is busy. Then resume the operation, which begins from scratch " +
				"with it; or move it alone, or with a longer limit.",
		},
		{
			Code: CodePreCopy, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "A move copies a workload cluster while its source works on it, and in the pause " +
				"only what has changed since. That was not possible, or what had been copied did not fit " +
				"any more and was removed, so all of it is copied in the pause.",
			Next: "Nothing: the pause is a few seconds longer. When a removal failed, its objects are " +
				"left on the target, paused, and the workload cluster is not moved: roll the operation back, " +
				"which removes them.",
		},
		{
			Code: CodeCopyLeft, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "A move was given back to the source without its target. The copies that it " +
				"has made are left there, paused: their controllers do not reconcile them.",
			Next: "Release nothing of it there. Roll the move back once more when the target answers: " +
				"that removes the copies. If the target is gone for good, forget the operation.",
		},
		{
			Code: CodeSourceAway, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "A run of a move ended with work left, and the source does not answer. What it did " +
				"not do may have no other reason.",
			Next: "Resume the move once the source answers. If it does not come back soon, resume " +
				"without it: that releases on the target what was handed over, and leaves the rest.",
		},
		{
			Code: CodeTargetAway, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "A run or a rollback of a move ended with work left, and the target does not answer. " +
				"What it did not do may have no other reason.",
			Next: "Resume the move, or roll it back, once the target answers. If it does not come back " +
				"soon, roll back without it: that gives back to the source what was not handed over, and " +
				"leaves the paused copies on the target.",
		},
		{
			Code: CodeStoreAway, Area: AreaRun, Severities: []Severity{Warning}, Forceable: true,
			ForcedIn: Returns,
			Meaning: "A move was given back to the source without its store: its journal and the locks on " +
				"the source show that nothing was handed over. That nobody has gone on with it on another " +
				"host, or restored the workload clusters elsewhere, is not known.",
			Next: "See that no other management cluster reconciles them. Override this only when you have " +
				"seen to it: without that, a rollback without the target needs the store. When the store " +
				"answers, roll the move back once more, which writes the ownership records.",
		},
		{
			Code: CodeWorkloadAPI, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "The API server of the workload cluster did not answer through its " +
				"restored kubeconfig.",
			Next: "This host may have no route to it: read the condition RemoteConnectionProbe " +
				"of the Cluster.",
		},
		{
			Code: CodeManagedFields, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "Server-side appliers do not own the same fields as in the snapshot.",
			Next: "The next apply of each controller writes its own fields again. Remove by hand only " +
				"a field that a controller stopped to apply before that.",
		},
		{
			Code: CodeRefusedByTarget, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "The target refuses to create an object of the workload cluster: a policy, a " +
				"webhook, a quota or a validation rule. Nothing of the workload cluster was created.",
			Next: "Change what refuses it on the target, then plan again or resume the operation.",
		},
		{
			Code: CodeChangedByTarget, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "The target would change values of the snapshot when it creates an object: a " +
				"policy or a webhook does that. Nothing of the workload cluster was created.",
			Next: "Stop the policy or the webhook, or accept the difference.",
		},
		{
			Code: CodeWouldRollOut, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "The target would change a value that Cluster API compares with the Machines that " +
				"there are. After the release it would replace these Machines.",
			Next: "Stop the policy or the webhook that changes it. Accept the difference only when you " +
				"want the rollout.",
		},
		{
			Code: CodeQuota, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "A ResourceQuota of the target has no room for everything that is created in its " +
				"namespace.",
			Next: "Raise the quota, or restore fewer workload clusters of the namespace.",
		},
		{
			Code: CodeStatusInvalid, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "The status of an object is not valid on the target: the schema of its kind there " +
				"refuses a value, or requires one that the snapshot does not have.",
			Next: "Install the provider of this kind on the target at the version of the source. " +
				"Otherwise leave the workload cluster out.",
		},
		{
			Code: CodeNotChecked, Area: AreaRun, Severities: []Severity{Info},
			Meaning: "Whether the target accepts an object could not be found out: its namespace or " +
				"class is not on the target yet, or a webhook there supports no dry-run.",
			Next: "Nothing. What waits for its namespace or class is checked by the run, before " +
				"anything of its workload cluster is created.",
		},
		{
			Code: CodeAddedOnTarget, Area: AreaRun, Severities: []Severity{Info},
			Meaning: "The target added values to copies: a webhook, a policy or a controller there " +
				"sets defaults, labels, annotations, finalizers or conditions.",
			Next: "Nothing, unless the message shows a path that you do not expect.",
		},
		{
			Code: CodeLostInConversion, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "The target stores objects at another version than that of the snapshot, and its " +
				"conversion drops values. They cannot be written there at all.",
			Next: "Nothing, when controllers write the values again, as they do in a status. Otherwise " +
				"compare the release notes of the two versions.",
		},
		{
			Code: CodeDifferenceAccepted, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "Values of the snapshot are lost or changed on the target. The operator accepted " +
				"that, and the workload cluster is released.",
			Next: "Find out what changes the values on the target.",
		},
		{
			Code: CodeObserve, Area: AreaRun, Severities: []Severity{Error},
			Meaning: "Machines of a workload cluster were created or deleted on the target after " +
				"its release.",
			Next: "Check the controllers of the target at once: something replaces Machines. When the " +
				"Machines are what you want, accept the workload cluster and resume the operation.",
		},
		{
			Code: CodeNotAcknowledged, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "Objects whose controller reconciles seldom, such as MachineHealthChecks, had not " +
				"acknowledged the end of the pause when the target was watched to the end.",
			Next: "Look at their condition Paused in a minute. If it is still True, read the logs of " +
				"their controller.",
		},
		{
			Code: CodeUnitAccepted, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "The workload cluster failed the checks after its release, or was written to on the " +
				"source, and the operator accepted its state.",
			Next: "Nothing. A resume goes on with it.",
		},
	}
}
