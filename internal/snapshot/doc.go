// Package snapshot captures the object graph of a management cluster at one resourceVersion and
// writes it to a store, and reads it back.
//
//	Source ──LIST Exact──► capture ──bytes──► packs ┐
//	                          │                     ├─► shards ─► tree ─► envelope (signed, last)
//	                          └─metadata, edges─► Graph ┘
//
// An object's bytes are kept as the server sent them. Of each object only metadata and the fields
// of the edge table are read; they make the Graph: nodes, owner and need edges, units. A unit is
// one workload cluster and what only it needs; what several need is shared and belongs to no unit.
//
// What is stored already is not written again: an incremental.State tells under which key, and the run checks
// that against the snapshot that it remembers, the base. Nothing of a snapshot depends on that but
// where its bytes are.
//
// Capturing never pauses or changes the source: all it holds is a Source, which can LIST
// (invariants I2, I7).
package snapshot
