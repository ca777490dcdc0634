// Package replicate brings the snapshots of a store to a copy of it, in another place.
//
//	Run: envelopes of both ──► what is missing ──► batches: trees · record · content · envelope
//	                                           └──► pins, results of verifies, prune records
//
// The bytes of a copy are those of the origin, under the same keys. Only mgmtd.json, the records of
// prunes and the records of copy runs are the copy's own; ownership and operations stay in the
// origin. A copy has its own retention and its own Object Lock.
//
// Invariants:
//   - Only what a trusted key signed is copied, and bytes are compared with their names on the way.
//   - An envelope comes last, so that a snapshot in the copy is whole. Oldest come first, but for
//     the newest one of a copy that is far behind.
//   - A run may be interrupted at any call, run twice, and run beside another one and beside prunes
//     of both sides (retention/copying.go says why).
//   - A snapshot that a prune of the copy removed, by the records there, is not copied again.
//   - Nothing is removed from a copy but the record of a run that has brought all it names.
package replicate
