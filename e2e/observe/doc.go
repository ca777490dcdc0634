// Package observe reads management clusters and workload clusters from outside and reports what
// changed, for tests and demos of snapshots, restores and moves. It writes nothing. It knows
// nothing of the product but the annotations that the product must not leave behind.
//
//	Objects          the objects of an API server, by name (Inventory)
//	Difference       an object that is gone, new or different (Compare)
//	Watcher          every creation and deletion of Machines, infrastructure objects and CA Secrets
//	ReconcilerWatch  which management cluster reconciles a workload cluster, and how long none does
//	Probe            the answers of workload API servers while no management cluster reconciles them
//
// Inventory replaces the values of Secrets by hashes: no value leaves the package.
package observe
