// Package object is the leaf of the tree: what names an object (Ref, GroupKind, Key), what a check
// reports (Finding, Severity), and the registry of all finding codes.
package object
