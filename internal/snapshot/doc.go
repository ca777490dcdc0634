// Package snapshot creates snapshots of a management cluster in a store, opens them, verifies their
// contents, and compares them.
//
//	load parent ──► capture ──► write ──► publish ──► remember
//	                  │           │          │           │
//	                 packs    shards, tree  envelope    state for the next run
//	                                        (signed)
//
// # Vocabulary
//
// A snapshot is the cut of a source (package capture) in a store: packs have the bytes of objects,
// shards their nodes, the tree names both, and the signed envelope names the tree. The parent is
// the snapshot before. Create is one run of five phases (create.go); each phase gets values of
// those before it and returns one of its own.
//
// Package incremental has what a run knows of its parent, and package shard the format of a shard.
//
// # Invariants
//
// The envelope is written last: without it the snapshot does not exist, and what was written stays
// unreferenced. A run names only keys of its parent and its own; it publishes nothing if the parent
// is not the newest snapshot any more, and nothing after store.MaxRun, so that no prune deletes
// what it needs. What a snapshot contains does not depend on its parent, only where the bytes are.
//
// A snapshot that is opened is untrusted input until its bytes fit the signed envelope (invariant
// I8).
package snapshot
