package object

// otherDefinitions are the codes of snapshots, verification, prune and mgmt check.
func otherDefinitions() []Definition { //nolint:funlen // a table
	return []Definition{
		{
			Code: CodeMissing, Area: AreaSnapshot, Severities: []Severity{Error, Warning},
			Meaning: "Something that is needed is missing: an object that is named but not in " +
				"the snapshot (warning), or a key of the store that a snapshot names (error).",
			Next: "For an object, find out why it is not captured. For a key, do not restore " +
				"from this snapshot: restore the key from a copy of the store, or use another " +
				"snapshot.",
		},
		{
			Code: CodeKindsNotRead, Area: AreaSnapshot, Severities: []Severity{Warning},
			Meaning: "Kinds of which nothing is known could not be listed. Objects of them that belong to " +
				"workload clusters are not in the snapshot.",
			Next: "Allow the credentials to list them, or find out why the API server does not. A restore " +
				"does not need such objects.",
		},
		{
			Code: CodeNotRemembered, Area: AreaSnapshot, Severities: []Severity{Warning},
			Meaning: "The snapshot is complete, but the catalog could not store what the next " +
				"one reuses.",
			Next: "Check the disk of the catalog. The next snapshot reads and writes " +
				"everything.",
		},
		{
			Code: CodeShrunk, Area: AreaSnapshot, Severities: []Severity{Warning},
			Meaning: "The snapshot has less than half of the objects that the one before it has, and at " +
				"least 100 fewer.",
			Next: "If nobody deleted them on purpose, find out what did, and pin the snapshot before it: " +
				"a rule that retains the last ones removes it in time.",
		},
		{
			Code: CodeTooManyReferences, Area: AreaSnapshot, Severities: []Severity{Warning},
			Meaning: "The object has more than 10,000 owners, or names more than 10,000 objects, and is " +
				"not in the snapshot. Its workload cluster is incomplete there.",
			Next: "Remove what it does not need. Find out who made it: it may be meant to disturb " +
				"snapshots.",
		},
		{
			Code: CodeNothingSelected, Area: AreaSnapshot, Severities: []Severity{Warning},
			Meaning: "The selector of the snapshot or of its schedule selects no workload cluster. The " +
				"snapshot was taken, and is empty.",
			Next: "Compare the selector with the labels of the Clusters. The coverage of the source " +
				"lists what a selector selects.",
		},
		{
			Code: CodeSignature, Area: AreaVerify, Severities: []Severity{Error, Warning},
			Meaning: "The signature of the snapshot is missing or not trusted.",
			Next:    "Give the public key of the mgmtd that wrote it, or use another snapshot.",
		},
		{
			Code: CodeChain, Area: AreaVerify, Severities: []Severity{Warning, Info},
			Meaning: "The chain of the snapshots of a source is broken: a parent or a later " +
				"snapshot is missing, or the parent was changed.",
			Next: "If nobody deleted it on purpose, somebody hid or changed it: read the access " +
				"log of the store.",
		},
		{
			Code: CodeDamaged, Area: AreaVerify, Severities: []Severity{Error},
			Meaning: "The bytes of a key do not match its name, or break the format.",
			Next: "Do not restore from this snapshot. Restore the key from a copy of the store, " +
				"or use another snapshot.",
		},
		{
			Code: CodeUnreadable, Area: AreaVerify, Severities: []Severity{Error},
			Meaning: "The store did not return a key.",
			Next:    "Check the disk or the storage server, then verify again.",
		},
		{
			Code: CodeEdges, Area: AreaVerify, Severities: []Severity{Error, Warning},
			Meaning: "An object names other objects than the snapshot says: another version wrote the " +
				"snapshot, or somebody changed it.",
			Next: "When another version wrote the snapshot, verify with that version. Otherwise " +
				"do not restore from it.",
		},
		{
			Code: CodeNotRecorded, Area: AreaVerify, Severities: []Severity{Warning},
			Meaning: "The result of the verification is in this catalog only: the store refused " +
				"the record.",
			Next: "Check the rights on the store.",
		},
		{
			Code: CodeRetainedShort, Area: AreaVerify, Severities: []Severity{Warning},
			Meaning: "The storage retains something that the snapshot needs for less time than was asked " +
				"for (Object Lock), or not at all.",
			Next: "Check that the bucket has Object Lock, and whether somebody wrote over the key. A full " +
				"snapshot writes and retains everything again.",
		},
		{
			Code: CodeEnvelopeUnreadable, Area: AreaPrune, Severities: []Severity{Error},
			Meaning: "An envelope or its tree cannot be read, so what it needs is unknown. No " +
				"content is removed.",
			Next: "Restore the key from a copy of the store, or delete the snapshot.",
		},
		{
			Code: CodeEnvelopeUntrusted, Area: AreaPrune, Severities: []Severity{Error},
			Meaning: "No trusted key signed an envelope. It is retained, and no content is " +
				"removed.",
			Next: "Find out where it comes from, and whether the bucket has an older version of " +
				"it. Then delete it.",
		},
		{
			Code: CodeSnapshotMissing, Area: AreaPrune, Severities: []Severity{Error, Warning},
			Meaning: "Snapshots are missing that no record explains: somebody may have hidden " +
				"them. A prune removes no content then. Snapshots, verifies and plans of restores report " +
				"as a warning those that this host knows from its catalog.",
			Next: "Search for them in a copy of the store or among older versions in the bucket. " +
				"If they are gone for good, accept the gap once.",
		},
		{
			Code: CodePinned, Area: AreaPrune, Severities: []Severity{Info},
			Meaning: "A snapshot was pinned while the prune ran. It stays.",
			Next:    "Nothing.",
		},
		{
			Code: CodeInUse, Area: AreaPrune, Severities: []Severity{Info},
			Meaning: "An operation began to use a snapshot while the prune ran. It stays.",
			Next:    "Nothing: a later prune removes it.",
		},
		{
			Code: CodeRetained, Area: AreaPrune, Severities: []Severity{Info},
			Meaning: "The storage does not allow the deletion yet (Object Lock).",
			Next:    "Nothing: a later prune removes it when its retention has ended.",
		},
		{
			Code: CodeSlow, Area: AreaPrune, Severities: []Severity{Info},
			Meaning: "The prune took too long to use its record. The remaining snapshots stay.",
			Next:    "Run the prune again.",
		},
		{
			Code: CodeClock, Area: AreaPrune, Severities: []Severity{Warning},
			Meaning: "The clocks of the storage and of this host differ, or snapshots state a time that " +
				"is still to come.",
			Next: "Set the clock. Expiry uses the clock of the storage, snapshot times that of " +
				"the host that takes them.",
		},
		{
			Code: CodePruneRecord, Area: AreaPrune, Severities: []Severity{Error, Warning},
			Meaning: "As a warning: a record of an earlier prune is damaged or not trusted. It is " +
				"ignored. As an error, in a copy: the record of a run that copies is. What the run is " +
				"bringing is not known, so that no content is removed.",
			Next: "Gaps that a record of a prune explained are reported as missing snapshots. Trust the " +
				"key of the copy runs, or find out who wrote the record of a run. It is ignored and removed " +
				"when it is a week old.",
		},
		{
			Code: CodeRecordUnusable, Area: AreaPrune, Severities: []Severity{Warning},
			Meaning: "Pins, results of verifies, ownership records or records of operations are damaged, " +
				"or no key signed them that is trusted for what they say. They do not count, but a pin " +
				"protects its snapshot all the same.",
			Next: "Find out who wrote them. In a versioned bucket, plan a repair of the store: it " +
				"brings back what was written over.",
		},
		{
			Code: CodeUnreachable, Area: AreaMgmt, Severities: []Severity{Error},
			Meaning: "The management cluster does not answer.",
			Next:    "Check its kubeconfig and the network.",
		},
		{
			Code: CodeNoClusterAPI, Area: AreaMgmt, Severities: []Severity{Error},
			Meaning: "The management cluster does not serve Cluster API.",
			Next:    "Install Cluster API, or name another management cluster.",
		},
		{
			Code: CodeNoInventory, Area: AreaMgmt, Severities: []Severity{Info, Warning},
			Meaning: "clusterctl did not install the providers, so their versions are unknown. It is a " +
				"warning of a plan whose source has an inventory and whose target has none.",
			Next: "Compare the versions by hand before a restore or a move.",
		},
		{
			Code: CodeContractMissing, Area: AreaMgmt, Severities: []Severity{Warning},
			Meaning: "A provider is installed, but no kind has its label and a contract " +
				"version. Its kinds may not be captured.",
			Next: "Install the provider again.",
		},
		{
			Code: CodePaused, Area: AreaMgmt, Severities: []Severity{Warning},
			Meaning: "The Cluster is paused: nothing reconciles it.",
			Next:    "A restore or a move leaves it paused. Unpause it if that is not intended.",
		},
		{
			Code: CodeOperationMark, Area: AreaMgmt, Severities: []Severity{Warning},
			Meaning: "The Cluster is locked by a move, or is the paused copy of a restore, that this " +
				"catalog does not have.",
			Next: "Another host works on it, or its catalog is lost: resume the operation " +
				"there.",
		},
		{
			Code: CodeOperationDead, Area: AreaMgmt, Severities: []Severity{Warning},
			Meaning: "The Cluster is locked by a move, or is the paused copy of a restore, that has " +
				"ended.",
			Next: "Resume the operation, or roll back a move. When the operation is over and nothing " +
				"else reconciles the Cluster, release the copy, or remove the annotation " +
				"mgmtd.dev/operation.",
		},
		{
			Code: CodeFenced, Area: AreaMgmt, Severities: []Severity{Info},
			Meaning: "The Cluster is fenced: mgmtd paused it, because another management cluster owns " +
				"the workload cluster or is about to.",
			Next: "Nothing while the other management cluster reconciles it. Lift the fence when it " +
				"is to be reconciled here.",
		},
		{
			Code: CodeNotFenced, Area: AreaMgmt, Severities: []Severity{Error},
			Meaning: "The Cluster could not be fenced, or its fence could not be lifted.",
			Next:    "Mend the cause that the message names, and run the command again.",
		},
		{
			Code: CodePolicyNotArmed, Area: AreaMgmt, Severities: []Severity{Warning},
			Meaning: "Clusters are fenced or moved away, but the admission policy mgmtd-moved could not " +
				"be made or does not work: the API server lacks admission policies, or the credentials " +
				"may not write them. Nothing denies to unpause such a Cluster, or to create it again.",
			Next: "Suspend the GitOps tools that apply these Clusters, or grant the right and fence " +
				"again.",
		},
		{
			Code: CodePolicyNotLifted, Area: AreaPlan, Severities: []Severity{Error},
			Meaning: "The workload cluster was moved away from the target or fenced there. The " +
				"admission policy mgmtd-moved denies to release it, and the credentials may not take it " +
				"off the list of the policy.",
			Next: "Grant the credentials for the target to write the ConfigMap mgmtd-moved in kube-system.",
		},
		{
			Code: CodeCameBack, Area: AreaMgmt, Severities: []Severity{Info},
			Meaning: "The management cluster came back with workload clusters at work that another one " +
				"owns. The daemon paused them; the message has the longest time that both reconciled one.",
			Next: "Compare what both management clusters did meanwhile, and remove the copies that are " +
				"not needed any more.",
		},
		{
			Code: CodeOwnersAway, Area: AreaMgmt, Severities: []Severity{Error},
			Meaning: "The store of the ownership records does not answer, is missing or denies access: " +
				"which workload clusters belong to another management cluster is not known.",
			Next: "Mend the cause that the message names, and check again before you unpause anything.",
		},
		{
			Code: CodeFenceUnacknowledged, Area: AreaMgmt, Severities: []Severity{Error, Warning},
			Forceable: true, ForcedIn: Restores,
			Meaning: "The Cluster is fenced, but controllers of the management cluster have not " +
				"acknowledged the pause: they are dead, or still at work on the workload cluster.",
			Next: "Make sure that no controller of the management cluster runs, or fence again when " +
				"they run again.",
		},
	}
}
