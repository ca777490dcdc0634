// Package service is the API of proto/mgmt/v1: it parses requests, calls snapshot, restore and
// catalog, and converts what they return. The same Server serves a network listener and, for
// mgmtctl --standalone, a pipe inside the process.
package service
