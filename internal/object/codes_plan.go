package object

// planDefinitions are the codes of the pre-flight that restores and moves share.
func planDefinitions() []Definition { //nolint:funlen // a table
	return []Definition{
		{
			Code: CodeSourceNotGone, Area: AreaPlan, Severities: []Severity{Fatal},
			Meaning: "Nothing proves that the source management cluster is gone. Two management " +
				"clusters that reconcile one workload cluster destroy it.",
			Next: "Make sure that no controller of the source runs, and confirm it; or restore " +
				"without the release, which leaves everything paused.",
		},
		{
			Code: CodeSourceAnswers, Area: AreaPlan, Severities: []Severity{Fatal, Warning},
			Meaning: "The source management cluster is alive: its API server answers and a selected " +
				"Cluster is not fenced there, or it was seen after the restore was planned. The word of the " +
				"operator does not count against that.",
			Next: "Fence the workload clusters on the source, or shut it down for good. While both " +
				"live, a move is the safe way.",
		},
		{
			Code: CodeSourceSeenRecently, Area: AreaPlan, Severities: []Severity{Fatal, Warning},
			Forceable: true, ForcedIn: Restores,
			Meaning: "The source was seen, by a snapshot or an ownership record, less than 15 minutes or " +
				"three intervals of its schedule ago, whichever is longer, but at most an hour; or an API " +
				"server at its address refuses the credentials: it may well be at work.",
			Next: "Make sure that no controller of the source runs.",
		},
		{
			Code: CodeSourceLastSeen, Area: AreaPlan, Severities: []Severity{Info, Warning},
			Meaning: "When the source was last seen, and what it answered when it was dialled. It is a " +
				"warning when it was not dialled, because no kubeconfig for it is known.",
			Next: "Name the kubeconfig of the source, so that it is dialled before the release and at " +
				"each resume.",
		},
		{
			Code: CodeSourceMayReturn, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "If the source comes back, both management clusters reconcile the same " +
				"infrastructure.",
			Next: "Revoke the infrastructure credentials of the source: nothing else prevents " +
				"that.",
		},
		{
			Code: CodeSameMgmt, Area: AreaPlan, Severities: []Severity{Fatal, Warning},
			Meaning: "Source and target are the same management cluster: both have one UID of " +
				"kube-system. A restore allows that, a move does not. A target that was made from the " +
				"etcd or the disks of the source has that UID as well, and then nothing proves that the " +
				"original is dead.",
			Next: "Name two different management clusters for a move. If the target is a copy, make " +
				"sure that no controller of the original runs.",
		},
		{
			Code: CodeOwnerDamaged, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "The ownership record of the workload cluster cannot be read.",
			Next: "Find out which management cluster reconciles it (where its Cluster is not paused) " +
				"before you go on.",
		},
		{
			Code: CodeOwnedElsewhere, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true, ForceName: true,
			Meaning: "The ownership record names another management cluster: the workload " +
				"cluster was moved or restored there.",
			Next: "Work with that management cluster. Take the workload cluster over only when " +
				"that one is gone for good.",
		},
		{
			Code: CodeFencedHere, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "The Cluster on the target is fenced, and no ownership record of this store says " +
				"that the workload cluster belongs to the target or to the source of the snapshot: another " +
				"management cluster may reconcile it, whose record is in another store, or which has none.",
			Next: "Lift the fence, which asks the records of all stores. Otherwise make sure that no " +
				"other management cluster reconciles it.",
		},
		{
			Code: CodeOwnerAnswers, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "The management cluster that owns the workload cluster by its record answers, and " +
				"its Cluster is not paused there; or a snapshot or record shows that it came back after the " +
				"plan. No override of the owner counts against that.",
			Next: "Work with that management cluster, or move the workload cluster from it.",
		},
		{
			Code: CodeOwnerRefuses, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The owner of the workload cluster by its record is overridden, and an API server at " +
				"the address of that management cluster refuses the credentials: it may well be at work.",
			Next: "Use credentials that it accepts. Otherwise make sure that no controller of it runs.",
		},
		{
			Code: CodeOwnerSeenRecently, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The owner of the workload cluster by its record is overridden and does not answer, " +
				"but a snapshot or ownership record of that management cluster is recent (three times the " +
				"interval of its snapshots, at least 15 minutes, at most an hour): it may be at work " +
				"behind a network that is cut.",
			Next: "Make sure that no controller of it runs.",
		},
		{
			Code: CodeOwnerUntrusted, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The ownership record names another management cluster, but no trusted key " +
				"signed it, so it is not obeyed.",
			Next: "Find out who wrote the record, and check that the Cluster is paused or gone on the " +
				"management cluster that it names.",
		},
		{
			Code: CodeEpochWentBack, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The ownership record of the workload cluster has a lower epoch than a trusted " +
				"record that was seen before, or is gone: somebody with write access to the bucket " +
				"hides the newest one, or the store was restored from a copy.",
			Next: "Find out which management cluster reconciles the workload cluster (where its Cluster " +
				"is not paused), and who changed the store. Go on when it is the one of the plan.",
		},
		{
			Code: CodeOtherStore, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The last move or restore of the workload cluster wrote its ownership record into " +
				"another store than that of this move. That record stays as it is: it goes on to name the " +
				"management cluster that does not have the workload cluster any more.",
			Next: "Check the URL of the store. Move it with the other store, unless that one is given up: " +
				"with it, mgmtd takes the target of this move for a wrong owner, and fences it there.",
		},
		{
			Code: CodeNewStore, Area: AreaPlan, Severities: []Severity{Info},
			Meaning: "There was no store where the move was told to look for one, so the move has made " +
				"it. That is as it should be the first time; otherwise another store is meant.",
			Next: "Check the URL of the store. When it is wrong, stop the move, roll it back " +
				"and run it with the other store.",
		},
		{
			Code: CodeSnapshotAge, Area: AreaPlan, Severities: []Severity{Info, Warning},
			Meaning: "The age of the snapshot; a warning above 24 hours. The snapshot lacks " +
				"Machines that were created since, and has those that were deleted since.",
			Next: "Compare the Machines with the infrastructure before the release.",
		},
		{
			Code: CodeNotNewest, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The store has a newer snapshot of this source.",
			Next:    "Use the newest snapshot unless you want the older state.",
		},
		{
			Code: CodeSnapshotGap, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "Snapshots of this source are missing in the store, and no record explains " +
				"it.",
			Next: "Find out whether somebody deleted or hid them: read the versions and the " +
				"access log of the bucket.",
		},
		{
			Code: CodePassedOver, Area: AreaPlan, Severities: []Severity{Warning, Error},
			Meaning: "Envelopes did not count in the search for the newest snapshot: no trusted key " +
				"signed them, they are damaged, or they belong to another store. Snapshots and verifies " +
				"report them, too; in a verify a damaged one is an error.",
			Next: "Find out who wrote them. Name a snapshot by its id if you want one of them.",
		},
		{
			Code: CodeStoreOverwritten, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "Somebody wrote over mgmtd.json, which holds the id of the store, or deleted it. An " +
				"older version of it is used. Snapshots, verifies and prunes report it, too.",
			Next: "Take the credentials away from whoever wrote it, and repair the store.",
		},
		{
			Code: CodeSequenceLow, Area: AreaPlan, Severities: []Severity{Fatal},
			Meaning: "The snapshot has a lower number than the one that was asked for at least: newer " +
				"ones were hidden or lost.",
			Next: "Search for the newer snapshots among older versions in the bucket or in a copy of the " +
				"store. Ask for a lower number only if they are gone for good.",
		},
		{
			Code: CodePartialSnapshot, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The snapshot has the objects of selected namespaces only, or of the workload " +
				"clusters that a selector selects. The message says what is in it, and what is not.",
			Next: "Nothing, when the workload clusters that you need are in it. Otherwise name another " +
				"snapshot.",
		},
		{
			Code: CodeNotInCut, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The objects of a kind were not read at the same resourceVersion as the " +
				"others.",
			Next: "Check references between this kind and others after the restore.",
		},
		{
			Code: CodeIncomplete, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "The snapshot left out objects that the workload cluster needs, because they have " +
				"too many references. It is a warning for objects that no workload cluster is known to need.",
			Next: "Use a snapshot that has them. Override it only when you know that the workload cluster " +
				"works without them.",
		},
		{
			Code: CodeKindNotServed, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "The target does not serve a kind at the version of the snapshot.",
			Next: "Install the provider of this kind on the target, at the version of the " +
				"source or newer. Where a newer one has dropped the version of the snapshot, install one " +
				"that serves it, and upgrade that after the restore.",
		},
		{
			Code: CodeProviderMissing, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "The target lacks a provider whose objects are in the plan.",
			Next: "Install the provider with clusterctl init, at the version of the source or " +
				"newer.",
		},
		{
			Code: CodeProviderNamespace, Area: AreaPlan, Severities: []Severity{Info},
			Meaning: "The object is created in the namespace of a provider, whose controllers trust " +
				"what they find there: a Secret that a captured identity names, or what belongs to " +
				"workload clusters that live there. Nothing that is there is overwritten.",
			Next: "Nothing, if the credentials are right for the target. Where they differ by design, " +
				"create the Secret on the target first.",
		},
		{
			Code: CodeProviderOlder, Area: AreaPlan, Severities: []Severity{Error}, Forceable: true,
			Meaning: "A provider is older on the target than on the source.",
			Next:    "Upgrade the provider with clusterctl upgrade.",
		},
		{
			Code: CodeFeatureGate, Area: AreaMove, Severities: []Severity{Error, Warning, Info},
			Forceable: true, ForcedIn: Moves,
			Meaning: "A feature gate of a provider is on at the source and off at the target, as their " +
				"Deployments set it. It is an error where the plan has kinds on which the controllers of " +
				"the target would then not work, and a warning for any other gate. It is information where " +
				"the target does not set the gate, so that the default of its version counts.",
			Next: "Turn the gate on in the Deployment of that provider on the target. Override this when " +
				"you know that the workload clusters do not need it.",
		},
		{
			Code: CodeNotAllowed, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "The credentials lack a right that the operation needs.",
			Next:    "Use the credentials of an administrator, or grant the right.",
		},
		{
			Code: CodeOwnerMissing, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "An owner of the object is neither in the plan nor on the target. The " +
				"garbage collector would delete the object.",
			Next: "Restore or create the owner first, or leave the reference out.",
		},
		{
			Code: CodeOwnerDropped, Area: AreaPlan, Severities: []Severity{Info},
			Meaning: "An owner reference is left out, as requested.",
			Next:    "Nothing.",
		},
		{
			Code: CodeOwnerLate, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "The owner is of a kind that cannot be paused. It would have to be " +
				"created, and work, before this object.",
			Next: "Leave the owner reference out.",
		},
		{
			Code: CodeDeleting, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "The object was being deleted when it was read. In a restore, only a " +
				"Cluster is an error: other objects are restored without the deletion.",
			Next: "Let the deletion finish or find out what blocks it, then plan again; or use " +
				"an older snapshot.",
		},
		{
			Code: CodePauseUnsupported, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "The object has no pause that this version can set: its kind has none, or one " +
				"that is not safe to set. Its controller would work before its status is restored.",
			Next: "Leave its workload cluster out, or restore it by hand: the hint and " +
				"docs/providers.md say how.",
		},
		{
			Code: CodePauseIgnored, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "The controllers of this kind do not honour a pause. They would work on the copy " +
				"before its workload cluster is released; during a move both management clusters would " +
				"work on it.",
			Next: "Stop the controllers, as the hint and docs/providers.md say.",
		},
		{
			Code: CodePauseUnknown, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			ForcedIn: Moves,
			Meaning: "No way to pause this kind is known. It is created after the release. " +
				"During a move both management clusters would work on it.",
			Next: "Scale the controller of this kind on the source to zero for the time of the " +
				"move.",
		},
		{
			Code: CodeNotSettled, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "The controller of the object, a BareMetalHost, was in the middle of something that " +
				"it would begin again with a copy. It is an error where that could write to the disk or " +
				"to the firmware of a machine: while the machine is provisioned, prepared, serviced or " +
				"deprovisioned.",
			Next: "Let the controller finish, then take another snapshot or plan the move again. A host " +
				"that no workload cluster needs is left out.",
		},
		{
			Code: CodeHeld, Area: AreaPlan, Severities: []Severity{Error}, Forceable: true,
			ForcedIn: Restores,
			Meaning: "The object is the paused copy of a restore or a move that has not ended. " +
				"Its unpaused state may belong to another management cluster.",
			Next: "Finish that operation, or use an older snapshot.",
		},
		{
			Code: CodeNeedMissing, Area: AreaPlan, Severities: []Severity{Warning, Error}, Forceable: true,
			Meaning: "The object names another one that is not restored. It is an error when controllers " +
				"cannot reconcile the object without it: infrastructure, a control plane, bootstrap data, an " +
				"identity or credentials that are neither in the snapshot nor on the target.",
			Next: "Make sure that the target has it before the release. For an error, use a snapshot that " +
				"has it, or create it on the target as it was, and plan again.",
		},
		{
			Code: CodeForeignHold, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "Objects carry a finalizer, or Machines a deletion hook, of a controller that is " +
				"not of Cluster API. Both are restored, and a deletion on the target waits for that " +
				"controller.",
			Next: "Check that the controller runs on the target. If it does not, Machines that are " +
				"replaced stay in deletion until the finalizer or the annotation is removed by hand.",
		},
		{
			Code: CodeRunsCode, Area: AreaPlan, Severities: []Severity{Info},
			Meaning: "Objects of this kind run code on workload clusters by design. Only the " +
				"signature of the snapshot protects them.",
			Next: "Check that you trust the key that signed the snapshot.",
		},
		{
			Code: CodeModified, Area: AreaPlan, Severities: []Severity{Info},
			Meaning: "The resource modifiers change values of the object on its way to the target. The " +
				"message has their paths and never the values. All checks are made with the changed object.",
			Next: "Check that these are the values that differ by design.",
		},
		{
			Code: CodeModifierRefused, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "A rule of the resource modifiers cannot be applied to an object that it matches, or " +
				"would change what no rule may change: the identity of an object, its owners, finalizers, " +
				"status or pause, the name of its workload cluster, or the type of a Secret. Nothing is " +
				"restored or moved.",
			Next: "Correct the rule, or its conditions, and plan again.",
		},
		{
			Code: CodeModifierUnused, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "A rule of the resource modifiers matches no object that is restored or moved.",
			Next: "Compare its conditions with the objects of the plan. groupResource is the plural of a " +
				"kind with its group, such as awsclusters.infrastructure.cluster.x-k8s.io. When a rule is " +
				"meant for workload clusters outside of the selection, nothing has to be done.",
		},
		{
			Code: CodeRefused, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "The object is never created from a snapshot: its kind or its namespace is " +
				"not allowed. It is an error for an object of a provider that belongs to a workload " +
				"cluster, which would be released without it, and for a Secret that workload clusters " +
				"need and that the target lacks.",
			Next: "Install its provider on the target with clusterctl, which labels the CRD as one of " +
				"Cluster API. Create anything else by hand if something needs it.",
		},
		{
			Code: CodeCapturedOnly, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The object is in the snapshot and is not restored or moved, since nothing is known " +
				"of its kind. It was captured since it owns an object of the snapshot, is owned by one, or " +
				"has the label of a workload cluster. A move leaves it on the source.",
			Next: "When something needs it, add its kind to spec.kinds of the configuration of mgmtd, " +
				"with how it is paused and what it names, or create the object on the target by hand. " +
				"Otherwise nothing has to be done.",
		},
		{
			Code: CodeCAMissing, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "A Secret with certificates or keys of the workload cluster is not in the snapshot. " +
				"Its provider would create a new one, and the workload cluster would not trust it, or no " +
				"machine would join it.",
			Next: "Restore from an older snapshot that has the Secret.",
		},
		{
			Code: CodeCAInvalid, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "A certificate Secret of the workload cluster is incomplete, or its " +
				"certificate does not match its key.",
			Next: "Use an older snapshot: the workload cluster cannot be managed with this " +
				"Secret.",
		},
		{
			Code: CodeClusterLive, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "The target has a Cluster of this name that works. Two management clusters " +
				"may reconcile one workload cluster, or controllers would replace objects that " +
				"are missing.",
			Next: "Find out which management cluster it belongs to before you change anything. If it " +
				"belongs to the target, pause it there (spec.paused: true) and plan again.",
		},
		{
			Code: CodeExistsDeleting, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "The target has an object of this name that is being deleted.",
			Next:    "Let the deletion finish or find out what blocks it, then plan again.",
		},
		{
			Code: CodeExistsDifferent, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "The target has a different object of this name. Nothing is overwritten. It is " +
				"a warning for an ExtensionConfig: that of the target is used.",
			Next: "Find out who made it. Make its values equal to those of the snapshot, or accept the " +
				"difference, and plan again; or leave the workload cluster out.",
		},
		{
			Code: CodeOtherAnnotations, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The target has a namespace with other annotations than the snapshot. " +
				"Platforms write annotations of their own to each namespace. They stay.",
			Next: "If a controller of the target needs one of those of the snapshot, set it by hand.",
		},
		{
			Code: CodeLeftByOperation, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "An earlier operation created the object and did not write its status. managedFields " +
				"name the operation. Objects of earlier versions have the annotation mgmtd.dev/operation. " +
				"A restore completes the object when it is paused and equal but for its status: that is " +
				"a warning. Or a move away from there, which has not ended, holds the lock of a Cluster, " +
				"or of what workload clusters share.",
			Next: "Make sure that the earlier operation does not run. For an error, resume it where its " +
				"catalog is. If its catalog and its mirror are lost, roll back from marks, or leave the " +
				"workload cluster out, and plan again.",
		},
		{
			Code: CodeUnowned, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The object names a Cluster that is not restored, and no restored workload " +
				"cluster needs it. It is left out.",
			Next: "Restore it together with its workload cluster. Include such objects only when you " +
				"know what they do on the target.",
		},
		{
			Code: CodeAttachesToLive, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "The object names, selects by labels, or is owned by something that is on the target " +
				"and is not restored, such as a working Cluster. Controllers of the target would " +
				"act on it at once. An object that no restored workload cluster needs is left out with a " +
				"warning.",
			Next: "Find out whether both are the same workload cluster: names are no identity. If so, " +
				"create the object on the target by other means; else leave it out.",
		},
		{
			Code: CodeTargetSelects, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The target has an object that is not in the plan and that selects, by labels, a " +
				"workload cluster which the plan creates: a ClusterResourceSet or a HelmChartProxy. Its " +
				"controller acts on the copy as soon as that is there, although the copy is paused, and " +
				"in a move the source still works then. No rollback takes back what it has applied to " +
				"the workload cluster.",
			Next: "Compare it with the one of the source. When it must not act on that workload " +
				"cluster, pause it before you go on, with the annotation cluster.x-k8s.io/paused, until " +
				"its selector, or the labels of the workload cluster, are others; or leave that workload " +
				"cluster out. The selector of a ClusterResourceSet cannot be changed. Do not remove a " +
				"HelmChartProxy for this: its chart may be uninstalled from all workload clusters that " +
				"it selects.",
		},
		{
			Code: CodeExtraOnTarget, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The target has an object that belongs to the workload cluster and is not in the " +
				"snapshot, for example of an earlier attempt. Controllers count it after the release: a " +
				"MachineSet with a Machine too many scales down, and may remove the one that lives. It is " +
				"a warning for objects that no controller acts on.",
			Next: "Find out who made it. Roll back the operation that left it there, from marks when its " +
				"journal is lost, or use a newer snapshot that has it.",
		},
		{
			Code: CodeWebhookDown, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "A webhook of the target does not answer and would refuse every object of " +
				"a kind. It is a warning for a kind of which the plan has no objects.",
			Next: "Wait until the controllers of the provider run and their certificates are in " +
				"place, then plan again.",
		},
	}
}
