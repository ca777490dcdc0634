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
)

// HintKeys returns the keys of the hints of errors.
func HintKeys() []HintKey {
	return []HintKey{HintKubeconfig, HintCatalogFull, HintNamespace, HintOperation, HintPlan,
		HintDeleteDamaged, HintUnpin, HintSnapshots, HintFullSnapshot, HintVerify, HintStoreURL,
		HintPlain, HintNotPlain, HintRecipient, HintIdentity, HintSigningKey, HintTrustedKey,
		HintKeyFolder, HintSignOrNoFence, HintNoFence}
}
