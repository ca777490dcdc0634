// Package service implements the API of proto/mgmt/v1. A handler parses its request, calls another
// package or begins an operation, and converts the result. The same Server serves a network
// listener and, for mgmtctl --standalone, a pipe inside the process.
//
// # Vocabulary
//
// An operation runs in the background: Server.start begins a run (run.go) and returns an
// operationRun, on which a caller can wait. Files named *run.go hold what operations do. A location
// is a store that requests name; a side is a management cluster, source or target. Begin functions
// take requests as structs of this package: only handlers know the protobuf messages.
//
// # Invariants
//
// - Every error of a handler crosses the wire as a status with a Reason (errors.go). - Identities
// come with a request and are never stored. - An operation is recorded before it runs; its end is
// recorded, or the server fails (Server.Failed).
package service
