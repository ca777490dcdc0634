// Package fence keeps a management cluster from reconciling workload clusters that it lost, or is
// about to lose: it pauses their Clusters there and marks them (capi.AnnotationFenced).
//
// A fence is needed where no move holds the Clusters of a source: its API server answers, but its
// controllers may be dead; or it comes back after an outage, while a trusted ownership record with
// a higher epoch names another management cluster. The mark on the Cluster is the record of a
// fence, so that a fence needs no journal: it may run any number of times, and from any host.
//
// Pauser is the pause itself, for fences and for the source of a move alike.
package fence
