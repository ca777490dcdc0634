// Package capi is what this product knows about Cluster API and its providers, as data: which kinds
// there are, which objects they name, how they are paused. It knows nothing of flows, and it reaches
// nothing.
package capi
