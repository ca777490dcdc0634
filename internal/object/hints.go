package object

// HintKey names a hint to which a client adds its own commands and options. The hints of this
// product's packages name none, because a client of the daemon's API has no flags. The key of a
// finding is its code; an error with a key has the method HintKey.
type HintKey string

// The keys of the hints of errors.
const (
	HintKubeconfig  HintKey = "kubeconfig"   // a kubeconfig cannot be read or used
	HintCatalogFull HintKey = "catalog-full" // no space left for the catalog
	HintNamespace   HintKey = "namespace"    // a namespace of the selection does not exist
	HintOperation   HintKey = "operation"    // another operation has to end first
	HintPlan        HintKey = "plan"         // the plan lists the findings
	// a snapshot whose envelope cannot be used is to go
	HintDeleteDamaged HintKey = "delete-damaged"
	HintUnpin         HintKey = "unpin"         // a snapshot is pinned
	HintSnapshots     HintKey = "snapshots"     // another snapshot has to be named
	HintObjects       HintKey = "objects"       // another object of a snapshot has to be named
	HintAnySnapshot   HintKey = "any-snapshot"  // no snapshot holds it
	HintMgmtName      HintKey = "mgmt-name"     // one of several management clusters has to be named
	HintFullSnapshot  HintKey = "full-snapshot" // the next snapshot has to write everything
	HintVerify        HintKey = "verify"        // a verify lists all damage
	HintStoreURL      HintKey = "store-url"     // the place of the store, or an option of it
	HintPlain         HintKey = "plain"         // a store has to be opened as plain
	HintNotPlain      HintKey = "not-plain"     // a store must not be opened as plain
	HintRecipient     HintKey = "recipient"     // there is nobody to encrypt to
	HintIdentity      HintKey = "identity"      // no identity, or a wrong one
	HintSigningKey    HintKey = "signing-key"   // something has to be signed
	HintTrustedKey    HintKey = "trusted-key"   // a signature cannot be checked
	HintKeyFolder     HintKey = "key-folder"    // new keys would replace others
	HintSignOrNoFence HintKey = "sign-or-no-fence"
	HintNoFence       HintKey = "no-fence" // ownership cannot be recorded
	HintAccept        HintKey = "accept"   // a unit may be accepted as it is
	// a difference from the snapshot can be accepted
	HintAcceptDifference HintKey = "accept-difference"
)

// The keys of the hints of the service.
const (
	// one of several management clusters or storage locations, or a nameless one, has to be named
	HintSource           HintKey = "source"
	HintTarget           HintKey = "target"
	HintSourceKubeconfig HintKey = "source-kubeconfig"
	HintTargetKubeconfig HintKey = "target-kubeconfig"
	HintLiveSource       HintKey = "live-source"
	HintLocation         HintKey = "location"

	HintLive           HintKey = "live"            // a snapshot is compared with its live source
	HintFirstSnapshot  HintKey = "first-snapshot"  // the store holds no snapshot
	HintSnapshotCreate HintKey = "snapshot-create" // snapshots can be taken without a daemon
	HintPrunePlan      HintKey = "prune-plan"      // the plan of a prune lists the keys
	HintNewSigningKey  HintKey = "new-signing-key" // there may be no signing key yet
	// what is encrypted cannot be verified
	HintIdentityOrStructure HintKey = "identity-or-structure"
	HintOperations          HintKey = "operations" // the list of operations names it
	HintWatch               HintKey = "watch"      // an operation has to be waited for
	HintResume              HintKey = "resume"     // an operation can only be resumed
	HintRollback            HintKey = "rollback"   // copies are left until a rollback removes them
	// an operation waits for an identity
	HintResumeWithIdentity HintKey = "resume-with-identity"
	// an operation needs the document that its plan was made with
	HintResourceModifiers HintKey = "resource-modifiers"
	// an operation waits for that document
	HintResumeWithModifiers HintKey = "resume-with-modifiers"
	// an operation has to go on without its mirror in the store
	HintGiveUpMirror HintKey = "give-up-mirror"
	// a rollback without the target has to do without the store
	HintStoreAway HintKey = "store-away"
	// a move has to do without the side that does not answer
	HintWithoutTarget HintKey = "without-target"
	HintWithoutSource HintKey = "without-source"
)

// HintKeys returns the keys of the hints of errors.
func HintKeys() []HintKey {
	return []HintKey{HintKubeconfig, HintCatalogFull, HintNamespace, HintOperation, HintPlan,
		HintDeleteDamaged, HintUnpin, HintSnapshots, HintObjects, HintAnySnapshot, HintMgmtName,
		HintFullSnapshot, HintVerify,
		HintStoreURL, HintPlain, HintNotPlain, HintRecipient, HintIdentity, HintSigningKey,
		HintTrustedKey, HintKeyFolder, HintSignOrNoFence, HintNoFence, HintSource, HintTarget,
		HintSourceKubeconfig,
		HintTargetKubeconfig, HintLiveSource, HintLocation, HintLive, HintFirstSnapshot,
		HintSnapshotCreate, HintPrunePlan, HintNewSigningKey, HintIdentityOrStructure, HintOperations,
		HintWatch, HintResume, HintRollback, HintResumeWithIdentity, HintGiveUpMirror, HintStoreAway,
		HintWithoutTarget, HintWithoutSource,
		HintResourceModifiers, HintResumeWithModifiers, HintAcceptDifference, HintAccept}
}
