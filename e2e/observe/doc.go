// Package observe looks at management clusters and workload clusters from the
// outside and says whether they are what they were: for tests and demos of
// snapshots, restores and moves. It reads only, and knows nothing of the product
// but the annotations that the product must not leave behind.
//
//	Objects      what an API server holds, by name (Inventory)
//	Difference   one object that is gone, new or not Equal (Compare)
//	Watcher      every birth and death of Machines, infrastructure and CA Secrets
//	Hands        which management cluster is at work on a workload cluster, and how long none is
//	Probe        what workload API servers answer while their management cluster is away
//
// Values of Secrets never leave it: Inventory replaces each by its hash.
package observe
