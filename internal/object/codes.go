package object

// Code names a kind of finding. Codes are part of the API and of stored results: a code is added,
// never changed.
type Code string

// The codes of all findings. The registry has the meaning of each.
const (
	// Pre-flight of a restore or a move.
	CodeSourceNotGone      Code = "source-not-gone"
	CodeSourceSeenRecently Code = "source-seen-recently"
	CodeSourceAnswers      Code = "source-answers"
	CodeSourceLastSeen     Code = "source-last-seen"
	CodeOwnerAnswers       Code = "owner-answers"
	CodeOwnerRefuses       Code = "owner-refuses"
	CodeOwnerSeenRecently  Code = "owner-seen-recently"
	CodeSourceMayReturn    Code = "source-may-return"
	CodeSameMgmt           Code = "same-management-cluster"
	CodeOwnerDamaged       Code = "owner-damaged"
	CodeOwnedElsewhere     Code = "owned-elsewhere"
	CodeFencedHere         Code = "fenced-here"
	CodeOwnerUntrusted     Code = "owner-untrusted"
	CodeEpochWentBack      Code = "epoch-went-back"
	CodeOtherStore         Code = "other-store"
	CodeNewStore           Code = "new-store"
	CodeSnapshotAge        Code = "snapshot-age"
	CodeNotNewest          Code = "not-newest"
	CodeSnapshotGap        Code = "snapshot-gap"
	CodePassedOver         Code = "passed-over"
	CodeStoreOverwritten   Code = "store-overwritten"
	CodeSequenceLow        Code = "sequence-low"
	CodePartialSnapshot    Code = "partial-snapshot"
	CodeNotInCut           Code = "not-in-cut"
	CodeIncomplete         Code = "incomplete"
	CodeKindNotServed      Code = "kind-not-served"
	CodeProviderMissing    Code = "provider-missing"
	CodeProviderNamespace  Code = "provider-namespace"
	CodeProviderOlder      Code = "provider-older"
	CodeFeatureGate        Code = "feature-gate"
	CodeNotAllowed         Code = "not-allowed"
	CodeOwnerMissing       Code = "owner-missing"
	CodeOwnerDropped       Code = "owner-dropped"
	CodeOwnerLate          Code = "owner-late"
	CodeDeleting           Code = "deleting"
	CodePauseUnsupported   Code = "pause-unsupported"
	CodePauseUnknown       Code = "pause-unknown"
	CodePauseIgnored       Code = "pause-ignored"
	CodeNotSettled         Code = "not-settled"
	CodeHeld               Code = "held"
	CodeNeedMissing        Code = "need-missing"
	CodeRunsCode           Code = "runs-code"
	CodeModified           Code = "modified"
	CodeModifierRefused    Code = "modifier-refused"
	CodeModifierUnused     Code = "modifier-unused"
	CodeForeignHold        Code = "foreign-hold"
	CodeRefused            Code = "refused"
	CodeCapturedOnly       Code = "captured-only"
	CodeCAMissing          Code = "ca-missing"
	CodeCAInvalid          Code = "ca-invalid"
	CodeClusterLive        Code = "cluster-live"
	CodeExistsDeleting     Code = "exists-deleting"
	CodeExistsDifferent    Code = "exists-different"
	CodeOtherAnnotations   Code = "other-annotations"
	CodeLeftByOperation    Code = "left-by-operation"
	CodeUnowned            Code = "unowned"
	CodeAttachesToLive     Code = "attaches-to-live"
	CodeTargetSelects      Code = "target-selects"
	CodeExtraOnTarget      Code = "extra-on-target"
	CodeWebhookDown        Code = "webhook-down"

	// Pre-flight of a restore: the workload clusters as they are.
	CodeKubeconfigMissing   Code = "kubeconfig-missing"
	CodeKubeconfigInvalid   Code = "kubeconfig-invalid"
	CodeKubeconfigExpired   Code = "kubeconfig-expired"
	CodeCAMismatch          Code = "ca-mismatch"
	CodeMachinesCompared    Code = "machines-compared"
	CodeRealityUnknown      Code = "reality-unknown"
	CodeMachinesGone        Code = "machines-gone"
	CodeNodesUnknown        Code = "nodes-unknown"
	CodeControlPlaneUnknown Code = "control-plane-unknown"
	CodeOwnCluster          Code = "own-cluster"
	CodeStaysPaused         Code = "stays-paused"
	CodeHostedControlPlane  Code = "hosted-control-plane"

	// Pre-flight of a move.
	CodeNoFence      Code = "no-fence"
	CodeNoMirror     Code = "no-mirror"
	CodeIDNotUnique  Code = "id-not-unique"
	CodeLocked       Code = "locked"
	CodeProvisioning Code = "provisioning"
	// Those up to CodeHooksPending are about work that a move interrupts.
	CodeRollingOut      Code = "rolling-out"
	CodeUpgrading       Code = "upgrading"
	CodeRemediating     Code = "remediating"
	CodeUpdatingInPlace Code = "updating-in-place"
	CodeHooksPending    Code = "hooks-pending"
	CodeWouldAdopt      Code = "would-adopt"
	CodeRetireRefused   Code = "retire-refused"
	CodeGitOpsOwner     Code = "gitops-owner"
	// CodeGitOpsOwnerRemote is about owners that the management cluster does not have.
	CodeGitOpsOwnerRemote Code = "gitops-owner-remote"
	CodeGitOpsUnread      Code = "gitops-unread"
	CodeGitOpsSuspended   Code = "gitops-suspended"
	CodeAutoscaler        Code = "autoscaler"
	CodePoolShared        Code = "pool-shared"
	CodeGCWouldCascade    Code = "gc-would-cascade"
	CodeAPIDead           Code = "api-dead"

	CodeCopyAtWork     Code = "copy-at-work"
	CodeCopyHeld       Code = "copy-held"
	CodeCopyUnproven   Code = "copy-unproven"
	CodeOperationKnown Code = "operation-known"
	CodeOwnersUnread   Code = "owners-unread"
	CodeObjectStays    Code = "object-stays"

	// Forgetting an operation.
	CodeWorkLeft   Code = "work-left"
	CodeNotRetired Code = "not-retired"
	CodeMirrorOpen Code = "mirror-open"

	// During a restore or a move.
	CodeUnitFailed         Code = "unit-failed"
	CodeSharedFailed       Code = "shared-failed"
	CodeNotPaused          Code = "not-paused"
	CodePauseEnded         Code = "pause-ended"
	CodeChangedLate        Code = "changed-late"
	CodeNotOnTarget        Code = "not-on-target"
	CodeNotWorking         Code = "not-working"
	CodeDeletedOnSource    Code = "deleted-on-source"
	CodeCreatedOnSource    Code = "created-on-source"
	CodeSharedKept         Code = "shared-kept"
	CodeSharedGone         Code = "shared-gone"
	CodeMaxPause           Code = "max-pause"
	CodePreCopy            Code = "pre-copy"
	CodeCopyLeft           Code = "copy-left"
	CodeStoreAway          Code = "store-away"
	CodeSourceAway         Code = "source-away"
	CodeTargetAway         Code = "target-away"
	CodeWorkloadAPI        Code = "workload-api"
	CodeManagedFields      Code = "managed-fields"
	CodeAddedOnTarget      Code = "added-on-target"
	CodeLostInConversion   Code = "lost-in-conversion"
	CodeRefusedByTarget    Code = "refused-by-target"
	CodeChangedByTarget    Code = "changed-by-target"
	CodeWouldRollOut       Code = "would-roll-out"
	CodeQuota              Code = "quota"
	CodeStatusInvalid      Code = "status-invalid"
	CodeNotChecked         Code = "not-checked"
	CodeDifferenceAccepted Code = "difference-accepted"
	CodeObserve            Code = "observe"
	CodeNotAcknowledged    Code = "not-acknowledged"
	CodeUnitAccepted       Code = "unit-accepted"

	// Taking a snapshot.
	CodeMissing           Code = "missing"
	CodeKindsNotRead      Code = "kinds-not-read"
	CodeNotRemembered     Code = "not-remembered"
	CodeShrunk            Code = "shrunk"
	CodeTooManyReferences Code = "too-many-references"
	CodeNothingSelected   Code = "nothing-selected"

	// Verifying a snapshot.
	CodeSignature   Code = "signature"
	CodeChain       Code = "chain"
	CodeDamaged     Code = "damaged"
	CodeUnreadable  Code = "unreadable"
	CodeEdges       Code = "edges"
	CodeNotRecorded Code = "not-recorded"
	// CodeRetainedShort is about Object Lock.
	CodeRetainedShort Code = "retained-short"

	// Pruning a store.
	CodeEnvelopeUnreadable Code = "envelope-unreadable"
	CodeEnvelopeUntrusted  Code = "envelope-untrusted"
	CodeSnapshotMissing    Code = "snapshot-missing"
	CodePinned             Code = "pinned"
	CodeInUse              Code = "in-use"
	CodeRetained           Code = "retained"
	CodeSlow               Code = "slow"
	CodeClock              Code = "clock"
	CodePruneRecord        Code = "prune-record"
	CodeRecordUnusable     Code = "record-unusable"

	// Checking keys.
	CodeIdentityWrong    Code = "identity-wrong"
	CodeRecipientMissing Code = "recipient-missing"

	// Checking a management cluster.
	CodeUnreachable     Code = "unreachable"
	CodeNoClusterAPI    Code = "no-cluster-api"
	CodeNoInventory     Code = "no-inventory"
	CodeContractMissing Code = "contract-missing"
	CodePaused          Code = "paused"
	CodeOperationMark   Code = "operation-mark"
	CodeOperationDead   Code = "operation-dead"

	// Fencing workload clusters of a management cluster.
	CodeFenced              Code = "fenced"
	CodeNotFenced           Code = "not-fenced"
	CodePolicyNotArmed      Code = "policy-not-armed"
	CodePolicyNotLifted     Code = "policy-not-lifted"
	CodeCameBack            Code = "came-back"
	CodeOwnersAway          Code = "owners-away"
	CodeFenceUnacknowledged Code = "fence-unacknowledged"
)

// Area says which work reports a finding.
type Area string

// The areas, in the order of docs/findings.md.
const (
	AreaPlan     Area = "Pre-flight of a restore or a move"
	AreaMove     Area = "Pre-flight of a move"
	AreaMarks    Area = "Rollback from marks"
	AreaForget   Area = "Forgetting an operation"
	AreaRun      Area = "During a restore or a move"
	AreaSnapshot Area = "Taking a snapshot"
	AreaVerify   Area = "Verifying a snapshot"
	AreaPrune    Area = "Pruning a store"
	AreaKeys     Area = "Checking keys"
	AreaCopy     Area = "Copying a store"
	AreaMgmt     Area = "Checking a management cluster"
)

// Areas returns all areas in the order of docs/findings.md.
func Areas() []Area {
	return []Area{AreaPlan, AreaMove, AreaMarks, AreaForget, AreaRun, AreaSnapshot, AreaVerify,
		AreaPrune, AreaKeys, AreaCopy, AreaMgmt}
}

// Definition describes a code. Its texts name no command and no flag: mgmtctl adds those, because
// a client of the daemon's API has others.
type Definition struct {
	Code Code
	Area Area
	// Severities are those that a finding with this code can have, the usual one first.
	Severities []Severity
	// Forceable reports whether an operator may override the finding (--force of mgmtctl).
	Forceable bool
	// ForcedIn is the only work in which it can be overridden. Empty means restores and moves, moves
	// only for AreaMove, rollbacks from marks only for AreaMarks, and forgetting only for AreaForget.
	ForcedIn Work
	// ForceName: an override also names the management cluster that the finding is about.
	ForceName bool
	Meaning   string
	// Next is what to do about it.
	Next string
}

// Definitions returns the definition of every code, by area.
func Definitions() []Definition {
	all := append(planDefinitions(), realityDefinitions()...)
	all = append(all, moveDefinitions()...)
	all = append(all, progressDefinitions()...)
	all = append(all, gitOpsDefinitions()...)
	all = append(all, marksDefinitions()...)
	all = append(all, keyDefinitions()...)
	all = append(all, forgetDefinitions()...)
	all = append(all, copyDefinitions()...)
	return append(all, otherDefinitions()...)
}

// Define returns the definition of a code; false when there is none, as for the code of a newer
// server.
func Define(code Code) (Definition, bool) {
	for _, d := range Definitions() {
		if d.Code == code {
			return d, true
		}
	}
	return Definition{}, false
}
