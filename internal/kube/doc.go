// Package kube is the client of one management cluster: connection, identity, the kinds that it
// serves, LIST and watch of raw objects, the provider inventory, and the writes of a restore and a
// move.
//
// # Vocabulary
//
//   - kind: a group and kind with its storage version and resource name, as the server serves it.
//   - exact: a LIST as of one resourceVersion (resourceVersionMatch=Exact).
//   - page: one answer of a LIST with a continue token.
//   - management cluster's UID: the UID of its namespace kube-system.
//
// # Invariants
//
//   - I7: a Reader and a Prober cannot change anything. Planning, checking and capturing hold
//     Readers only. Only code that executes a journaled step makes a Writer.
//   - A Writer sends one request and does not retry. Updates and deletes carry the UID or the
//     resourceVersion that was read, so that a change in between is a Conflict.
//   - The identity of an object is its object.Ref: group, kind, namespace, name. UIDs belong to one
//     management cluster: those of objects on two clusters are never compared.
package kube
