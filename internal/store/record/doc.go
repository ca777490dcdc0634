// Package record has the small signed documents of a store: ownership records, results of verifies,
// pins, prune records and operation records.
package record
