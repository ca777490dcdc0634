// Package capture reads the objects of a management cluster as of one resourceVersion.
//
//	Source ──LIST, watch──► capture ──┬── each object's bytes ──► Sink
//	                                  └── metadata, edges ──► Cut (graph)
//
// # Vocabulary
//
// A cut is the set of captured objects as of one resourceVersion. The selection decides which
// objects are captured: kinds of Cluster API, what they own and name, and the Namespaces of those.
// The baseline is what is known of the source from an earlier capture: objects that did not change
// since are not read again. A sink receives the objects.
//
// There are two ways to a cut. A small source is listed as of the resourceVersion itself
// (exact.go). A large one is listed kind by kind from the API server's watch cache, and each kind
// is then watched up to the resourceVersion (listwatch.go).
//
// # Invariants
//
// The bytes of an object are those that the server sent. Of each object only metadata and the
// fields of the edge table are read. Capturing never pauses or changes the source: a Source can
// only list and watch (invariants I2, I7). A kind that cannot be read as of the resourceVersion is
// read at its newest state and named in Cut.NotInCut. Whatever the way and the baseline, a capture
// gives the same cut.
package capture
