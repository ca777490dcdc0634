// Package store holds snapshots in a bucket: it packs, compresses, encrypts, names and signs them,
// and checks all of that when it reads. docs/format.md specifies every byte; cryptography and
// storage are used only here and in the subfolders, of which only bucket is open to other
// packages.
//
// Vocabulary: a bucket holds bytes under keys. A store is what one mgmtd.json in a bucket
// describes. A pack is a tar of captured objects, a shard is the JSON index of one unit (package
// snapshot defines it), a tree lists the keys of all shards and packs of a snapshot, and an
// envelope is the signed document that names one tree. Reading goes envelope → tree → shards →
// packs. Writing goes the other way round: the envelope comes last, so that a run that dies leaves
// nothing visible.
//
// Invariants:
//   - Keys are written once (I3). Only ownership records change, by conditional write (owner.go),
//     and conditional.json while a server is tried out (bucket/s3/conditional.go). Only remove.go
//     deletes: for prune, snapshot delete and unpin.
//   - The name of a pack, shard or tree is the SHA-256 of its stored bytes, so that verifying needs
//     no private key. Bytes are compared with the name before they are decrypted or parsed.
//   - What is stored is encrypted, except envelopes, trees, records and mgmtd.json, which hold no
//     object name and no content (I6). A store is plain only when it was created as plain, and is
//     opened as plain.
//   - What is read is untrusted (I8): sizes are bounded, names are checked, damage is a
//     *CorruptError and never a panic.
package store
