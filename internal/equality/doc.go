// Package equality says what "the same object" means across management clusters. Restore, move,
// diff and rollback compare with it and with nothing else.
package equality
