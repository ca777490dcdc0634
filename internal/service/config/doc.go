// Package config reads the configuration file of mgmtd: one YAML file of documents, namely one
// Config of ours, and BackupStorageLocations and Schedules of Velero as their users have them. It
// reports every problem of the file at once, and refuses each field that is set and would have no
// effect: an operator who wrote "ttl" must not learn from a full bucket that nobody reads it.
//
// The file names keys and credentials by path and holds none itself. docs/config.md is its
// reference.
package config
