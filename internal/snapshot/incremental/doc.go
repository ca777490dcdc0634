// Package incremental holds what one snapshot of a source leaves for the next one, so that the next
// one reads and writes only what changed.
//
// # Vocabulary
//
// A chain is the snapshots of one source in one store; the parent is its newest snapshot, which the
// next one names in its envelope. The state is what is stored about the parent between two runs
// (StateStore): under which keys its content is, and the index, which is the source as that run
// read it. A RunCache holds the same in the memory of a process. The lease fingerprint proves that
// etcd was not restored since the parent, so that watches can start there.
//
// # Invariants
//
// State and cache are disposable. Without them the next snapshot reads and writes everything. What
// the state says is believed only as far as the tree of the parent names the same keys, and only if
// the parent is still the newest snapshot.
//
// The parts of the index are sealed with a key that is derived from the signing key, and content
// IDs are keyed by it: who has the catalog and not the signing key can neither read the index nor
// confirm a guess at a Secret.
//
// A run changes nodes of its parent. They have one owner at any time: LoadParent removes them from
// the cache, and Remember puts those of the new snapshot there when the run has ended.
package incremental
