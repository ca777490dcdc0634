// Package restore brings units of a snapshot under the control of a target management cluster.
//
//	NewPlan ──► Plan ──► Run ──► per unit: create (waves) ─► verify ─► release ─► post-flight
//	 │reads only       └ every change goes through the journal of the operation
//	 └ all checks, all findings at once
//
// Objects are created paused, owners first, with owner references to live UIDs; their status and
// the managedFields of server-side appliers follow, since status disarms controllers that would
// otherwise make a control plane anew. Only when a unit is whole and equal is its Cluster released,
// by one write.
//
// Ours or a stranger's: an object is created with the annotation mgmtd.dev/operation; its UID is
// journaled before the annotation is removed. Objects that carry neither are adopted when they are
// equal, and never changed.
package restore
