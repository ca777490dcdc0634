// Package kube is one management cluster, seen through its API server: connection, identity, the
// kinds it serves, raw LIST, provider inventory, the pause table, and the writes that restore
// needs.
//
// Two types face the API server. A Reader can LIST and nothing else: planning, checking and
// capturing hold Readers, so they cannot change a management cluster by mistake (invariant I7). A
// Writer is made only by the code that carries out a journaled step.
//
// Identity of an object is its object.Ref: group, kind, namespace, name. UIDs belong to one management
// cluster and do not travel.
package kube
