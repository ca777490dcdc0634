// Package mirror writes the journal of an operation into the store, so that another host can go on
// with it when the host that ran it is lost, with or without its catalog (invariant I4).
//
// # Records
//
// The mirror of an operation is a sequence of records, numbered from 1 without gaps, written once
// and only if the number is free. The first record of each run is whole: it holds all that the
// catalog has of the operation, its plans included. The others hold changes. They are written in
// the order of the catalog's commits, so that a reader finds a state that the writer's catalog
// once had, never a mixture. Each record has the hash of the one before it, so that the storage
// cannot put those of two hosts together.
//
// # What comes first
//
// A step that another host could not repeat or undo without knowing of it begins only when its
// record is in the store: the first step of a run, every step after a new plan, every step that is
// undone, and every step but those of harmless. An object of the target loses the mark of its
// operation only when its UID is in the store (StepHandle.Sync). All else is written in the
// background, and a step that is harmless waits as well once the newest record is 10 s old: the
// host may have been suspended.
//
// # Fencing
//
// Two hosts write the same number; one of them succeeds, and the other one stops with a
// FencedError. So a host that was suspended, while another one took over, begins no dangerous step
// any more, and creates no further object once its newest record is 10 s old. A step that it had
// begun by then may still change something. Such a change is harmless: on the source it is checked
// against the lock, whose number grows with each run; on the target it is written by condition
// after the record was asked for once more (Journal.Alive); so are the ownership record, and the
// list of the admission policy on either side; and a direction that was taken is never changed by a
// take-over.
//
// # Without the mirror
//
// An operation that has records is not continued without new ones, unless the operator gives the
// mirror up and the newest record is of this host (Options.GiveUp). From then on nothing tells
// another host that this one is at work, except the lock of a move.
package mirror
