// Package move moves workload clusters from one living management cluster to another. A move is a
// snapshot, a restore and a hand-over. Packages snapshot and restore do what they have in common;
// this package has what only a move needs: pause the source, hand over, retire, and roll back.
//
// # Vocabulary
//
//   - source, target: the management clusters that a move moves from and to.
//   - unit: a workload cluster with all objects that belong to it alone.
//   - shared object: an object that several units need. It is copied with the first of them, and
//     retired when nothing on the source needs it.
//   - batch: the units that are paused together and are in one snapshot.
//   - pre-copy: the paused copy of a unit that is made while the source works on it. In the pause
//     it gets what has changed since.
//   - lock: the annotation mgmtd.dev/operation "<operation>/<run>" on each Cluster of the source.
//   - hand-over: the ownership record in the bucket names the target. It is the point of no return.
//   - release: the copy is unpaused on the target. Retire: the unit is deleted on the source.
//   - repause: the copy is paused again, because it is not healthy after its release.
//
// # The states of a unit
//
//	pending ── lock, pre-copy, pause ──▶ paused ── snapshot, copy, verify ──▶ copied
//	   ▲                                                                        │   │
//	   └─────────────────────────── give back, roll back ───────────────────────┘   │ hand-over
//	                                                                                ▼
//	                                                                           handed-over
//
//	handed-over ── release ──▶ released ── retire ──▶ retired
//	     ▲                        │
//	     └─────── repause ────────┘
//
// A unit that fails before its hand-over is given back at once. A rollback without the target
// leaves its copy there, and the unit in given-back.
//
// Units move in batches: those of a batch are paused together and are in one snapshot. From there
// each unit proceeds by itself. Batches overlap: while none is paused, the next ones are locked and
// copied, and those before are retired.
//
// # Invariants
//
//   - I1: the source is paused from before its last snapshot until it is retired, and the copy is
//     paused from its first object until the hand-over is recorded. At no moment do two management
//     clusters reconcile one workload cluster.
//   - I2: nothing is deleted on the source before its snapshot is verified in the bucket, its copy
//     is verified on the target, and the copy is healthy after its release.
//   - I5: every step reads before it writes, and may run twice. Until the hand-over of a unit its
//     rollback leaves the source equal to what it was.
//   - Every write to a source Cluster is checked against the lock. So a process that was only
//     suspended finds out that another one resumed the operation.
package move
