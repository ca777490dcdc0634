// Package catalog is the local memory of mgmtd and mgmtctl: the index of the snapshots in the
// bucket, and the journal of operations. It is one bbolt file, and this is the only package that
// knows bbolt.
//
// # Vocabulary
//
// An operation is one run (snapshot, restore, move, verify, prune). It has a plan (opaque bytes),
// units (one workload cluster each, with a state), steps (what changes something; one phase, or one
// wave of a phase, of one unit) and events (its history, in order). A journal is the handle with
// which a run works on its operation: [Journal.Do] is the one place where something changes.
//
// # Invariants
//
//   - I4: the catalog is disposable. Whatever is wrong with the file, the way on is to move it away; the index is rebuilt from the bucket.
//   - I5: a step that is recorded done does not run again; one that is not, runs again, as a step converges. A record is on disk (fsync) before the call
//     that makes it returns.
//   - I6: no content of an object is ever in here, and no bare hash of it, by which a guess could be confirmed. Refs, names and UIDs are; callers keep secret values out of messages, results and values.
//   - One process at a time: the file is locked for as long as it is open, so an operation found running at [Open] was interrupted.
//
// # Bucket tree
//
// Times in keys are nanoseconds since 1970 as 16 hex digits, sequence numbers 8 bytes big endian,
// values JSON unless said otherwise. keys.go makes and takes apart every key.
//
//	meta
//	  schema                                   version, 4 bytes big endian
//	snapshots
//	  <time>/<snapshot id>/<store>/<source>    SnapshotRecord
//	snapshot-ids
//	  <snapshot id>/<store>/<source>           the key in snapshots
//	schedules
//	  <name>                                   ScheduleState
//	verifies
//	  <location>/<source>[/full]               VerifyState, by its name
//	known
//	  <store>/<source>                         state that a snapshot leaves for the next one
//	    secret                                 of the content ids, 32 bytes
//	    base                                   key and SHA-256 of that snapshot's envelope; absent when there is none
//	    parts
//	      <content id>                         sealed part of the index of the source
//	    keys
//	      <key>                                incremental.StoredKey of a shard or pack
//	running
//	  <operation id>                           empty; there is one for each operation whose state is running
//	operations
//	  <operation id>
//	    record                                 Operation, without units
//	    units
//	      <unit>                               UnitState, plain text
//	    steps
//	      <step>                               StepRecord
//	    values
//	      <step> 0x00 <key>                    what the step recorded while it ran
//	    events
//	      <seq>                                Event
//	    plan
//	      info                                 PlanInfo
//	      <number of chunk>                    a piece of the zstd stream, at most 256 KiB
//	    part-<name>                            like plan: a part of it that was made while the operation ran
package catalog
