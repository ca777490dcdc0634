// Package keys holds the keys of a store: whom content is encrypted to (age), who opens it, who
// signs (minisign) and whose signatures are trusted. It is the only package that sees key
// material.
package keys
