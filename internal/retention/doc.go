// Package retention decides which snapshots of a store stay, and removes the others together with
// the content that only they name.
//
//	NewPlan ──► Plan: every snapshot with its reasons to stay ──► Execute ──► Result
//	             └──► CountContent: how much content would go
//
// A plan is data. Execute removes no snapshot that its plan does not name, and of those that it
// names none that has become needed since.
//
// # Why no lock is needed
//
// A run that takes a snapshot uses again only what its parent names, the newest snapshot of its
// source when it began; all else that it names it wrote itself. So a prune takes nothing from a
// run in progress, wherever that is:
//
//   - A snapshot goes only when a newer one of its source has been there for the grace: no run in
//     progress has it as its parent, for that run would be older than store.MaxRun.
//   - Content goes only when no envelope that is there names it, and when it is older than the
//     grace: it is not what a run is writing.
//   - Envelopes go first. Whatever a prune that dies leaves behind are whole snapshots and content
//     that nothing names, which the next one finds.
//   - An envelope or a tree that cannot be read may name anything: then no content goes at all.
//
// What is about to go is recorded first, signed, so that a gap in the sequence numbers of a source
// is not taken for a snapshot that somebody hid. Ages are compared with the storage's clock, which
// the write of that record returns.
package retention
