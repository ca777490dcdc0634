// Package restore brings units of a snapshot under the control of a target management cluster.
//
//	NewPlan ──► Plan ──► Run ──► per unit: create (waves) ─► verify ─► release ─► post-flight
//	 │reads only       └ every change goes through the journal of the operation
//	 └ all checks, all findings at once
//
// Objects are created paused, owners first, with owner references to live UIDs; their status and
// the managedFields of server-side appliers follow. Without status, controllers would create a
// control plane from scratch. A Cluster is released, by one write, only when its unit is complete
// and equal to the snapshot.
//
// Which objects are ours: an object is created with the annotation mgmtd.dev/operation (the mark),
// and its UID is journaled before the mark is removed. Objects with neither are adopted when they
// are equal, and never changed.
package restore
