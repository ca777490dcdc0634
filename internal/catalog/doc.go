// Package catalog is the local database of mgmtd and mgmtctl: the index of the snapshots in the
// bucket, and the journal of operations. It is one bbolt file, and only this package uses bbolt.
//
// # Vocabulary
//
// An operation is one run (snapshot, restore, move, verify, prune, copy). It has a plan (opaque
// bytes), units (one workload cluster each, with a state), steps and events. A step is one
// phase, or one wave of a phase, of one unit; only a step changes anything outside of the
// catalog. Events are the history, in order. A journal is the handle with which a run works on
// its operation: [Journal.Do] runs a step.
//
// # Invariants
//
//   - I4: the catalog is disposable. Whatever is wrong with the file, an operator moves it away;
//     the index is rebuilt from the bucket, and unfinished restores and moves are imported from
//     their mirror there ([Catalog.Import]).
//   - I5: a step that is recorded done does not run again. A step that is not recorded done runs
//     again: it converges. A record is on disk (fsync) before the call that makes it returns.
//   - I6: the catalog holds no content of objects, and no bare hash of content, which could confirm
//     a guess. It holds refs, names and UIDs; callers omit secret values from messages and values.
//   - One process at a time: the file is locked while it is open. So an operation that is running,
//     or planned, when [Open] reads it was interrupted.
//
// # Bucket tree
//
// Times in keys are nanoseconds since 1970 as 16 hex digits, sequence numbers 8 bytes big endian,
// values JSON unless said otherwise. keys.go makes and parses every key.
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
//	epochs
//	  <store>/<workload id>                    the highest epoch seen of its ownership record
//	known
//	  <store>/<source>                         state that a snapshot leaves for the next one
//	    secret                                 of the content ids, 32 bytes
//	    base                                   key and SHA-256 of that snapshot's envelope, if any
//	    parts
//	      <content id>                         sealed part of the index of the source
//	    keys
//	      <key>                                incremental.StoredKey of a shard or pack
//	operation-index
//	  <kind>/<state>/<operation id>            empty; the state of a restore that has succeeded and
//	                                           is not released is "unreleased"
//	operations
//	  <operation id>
//	    record                                 Operation, without units
//	    mirror                                 MirrorState, if the store has a mirror of it
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
//	    part-<name>                            like plan: the plan of a batch <name>, made in the run
package catalog
