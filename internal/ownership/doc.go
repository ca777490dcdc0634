// Package ownership says which management cluster a workload cluster belongs to.
//
// The store has one signed record for each workload cluster, keyed by its id: the owner, an epoch
// that grows with each claim, and the operation that wrote it. Records are replaced by conditional
// writes only, so of two operations that claim at the same time one fails.
//
// A claim names the epoch of the record at planning. A record that was written after planning
// refuses it: another operation decided in the meantime, from facts that the plan does not have.
package ownership
