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
// Which objects are ours: an object is created under a field manager that names the operation (the
// mark, see mark.go), and its UID is journaled with those of its wave. An object with neither is
// adopted when it is good enough, and never changed.
package restore
