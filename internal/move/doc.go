// Package move brings workload clusters from one living management cluster to another. A move is a
// snapshot, a restore and a hand-over: what it shares with these is done by packages snapshot and
// restore, and here is what only a move needs: pausing the source, handing over, retiring, and the
// way back.
//
// # The way of a unit
//
//	pending ── pause ──▶ paused ── snapshot, copy, verify ──▶ copied ── hand-over ──▶ handed-over ── release ──▶ released ── retire ──▶ retired
//	   ▲                                                        │                         ▲                         │
//	   └────────────────────── roll back ───────────────────────┘                         └──────── brake ──────────┘
//
// Units go through it in batches: those of a batch are paused together, stand in one snapshot, and
// each goes on by itself from there.
//
// # Invariants
//
//   - I1: the source stands still from before the copy begins until it is retired, and the copy stands still until the hand-over is on record. At no moment
//     do two management clusters reconcile one workload cluster.
//   - I2: nothing is deleted on the source before its snapshot is verified in the bucket, its copy is verified on the target, and the copy is well after its
//     release.
//   - I5: every step looks before it writes, and may run twice. Until the hand-over of a unit its rollback leaves the source equal to what it was.
//   - The lock: the annotation mgmtd.dev/operation "<operation>/<run>" on each Cluster of the source. Every write to a source is checked against it, so that a
//     process that was only suspended finds out that another one went on.
package move
