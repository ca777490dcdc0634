// Package providertest has the tests of the providers: the objects that the controllers of each
// provider leave, on real API servers with its CRDs, through a snapshot, a restore and a move. A
// file of testdata is one provider. It says what its source demands, and not what the rows of
// package capi say, so that the two check each other.
package providertest
