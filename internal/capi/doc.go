// Package capi is what this product knows about Cluster API and its providers, as data. It has one
// Row for each kind, in one file for each provider, with all that any flow has to know of the
// kind: which objects it names, how it is paused, whether workload clusters share it, whether it
// runs code. Flows read the row of a kind; they name no kind outside of Cluster API core
// themselves. Adding a provider is one file here and its test data in testdata.
//
// A kind without a row of its own gets a default row (defaults.go): by its API group where a
// contract of Cluster API says enough, else the row of an unknown kind. The daemon's configuration
// adds rows (spec.kinds). A Table is the built-in rows and those; it never changes, and a nil
// Table is the built-in one.
//
// The package is a leaf: it uses object, reads objects as JSON, and reaches nothing.
package capi
