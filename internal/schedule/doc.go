// Package schedule decides when the daemon takes snapshots, verifies, copies and prunes by itself.
// It begins each as an operation, through the interfaces [Snapshots], [Verifies] and [Copies], and
// waits for its end.
//
// # Vocabulary
//
// A [Schedule] says when to take snapshots of what. It is due at a time, and overdue when no run
// succeeded since it was due. A run is one operation: its beginner gets a [Run] and waits for it.
// What survives a restart of the daemon (the last run, a pause) is in the catalog.
package schedule
