// Package store keeps snapshots in a bucket: it packs, compresses, encrypts, names and signs them,
// and checks all of that when it reads. docs/format.md specifies every byte; cryptography and
// storage are reached only from here.
//
// Words: a Bucket holds bytes under keys. A store is what one mgmtd.json in a bucket describes. A
// pack is a tar of captured objects, a shard is the JSON index of one unit (package snapshot
// defines it), a tree lists the keys of all shards and packs of a snapshot, and an envelope is the
// signed document that names one tree. Reading goes envelope → tree → shards → packs; writing goes
// the other way round, so that the envelope comes last and a run that dies leaves nothing that is
// visible.
//
// What holds:
//   - Keys are written once (invariant I3). Nothing in this package deletes; only ownership records change, by conditional write (owner.go), and the
//     record of what a server can do while it is made (s3conditional.go).
//   - The name of a pack, shard or tree is the SHA-256 of its stored bytes, so integrity needs no private key, and the bytes are checked against the
//     name before anything is decrypted or parsed.
//   - What leaves for the bucket is encrypted, except envelopes, trees and mgmtd.json, which hold no object name and no content (invariant I6). A
//     store is plain only when it was made so and is asked for as such.
//   - What is read is untrusted (invariant I8): sizes are bounded, names are checked, damage is a *CorruptError and never a panic.
package store
