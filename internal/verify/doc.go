// Package verify checks that a snapshot in a store is whole, and remembers the result.
//
// A verification has one of three levels. Structure checks, without an identity, that every key
// that the snapshot names is there with the bytes of its name. Sample reads the objects of some
// packs and compares each with its shard. Full does both, with all packs.
//
// Run finds what is wrong and changes nothing. Record writes the result to the catalog and to the
// store. Lookup returns the result that counts for a snapshot, from both.
//
// Nothing inside a snapshot is read unless its signature is accepted (invariant I8).
package verify
