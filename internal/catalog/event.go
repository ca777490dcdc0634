package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/object"
)

// EventType says which fields of an event matter.
type EventType string

// The types of event.
const (
	// EventOperation: the operation went into State; Message says why.
	EventOperation EventType = "operation"
	// EventUnit: Unit went into State.
	EventUnit EventType = "unit"
	// EventStep: Step, of Unit, went into State; Message is the error of a failed one.
	EventStep EventType = "step"
	// EventProgress: see Progress. It is sent to watchers only; it is not stored and has no Seq.
	EventProgress EventType = "progress"
	// EventFinding: a check of Unit, or of everything, found Finding.
	EventFinding EventType = "finding"
	// EventMessage: Message, a sentence for people.
	EventMessage EventType = "message"
)

// Event is one entry of an operation's history.
type Event struct {
	// Seq is the position in the history, from 1 and without gaps; 0 on progress.
	Seq     int64     `json:"seq"`
	Time    time.Time `json:"time"`
	Type    EventType `json:"type"`
	Step    string    `json:"step,omitempty"`
	Unit    string    `json:"unit,omitempty"`
	State   string    `json:"state,omitempty"`
	Message string    `json:"message,omitempty"`
	// HintKey names the hint in Message, to which a client adds its commands.
	HintKey  object.HintKey  `json:"hintKey,omitempty"`
	Progress *Progress       `json:"progress,omitempty"`
	Finding  *object.Finding `json:"finding,omitempty"`
}

const (
	// eventPage is how many events one transaction reads; between two pages writers may grow the
	// file.
	eventPage = 256
	// maxMessage limits messages and error texts: an API server can answer with a whole object.
	maxMessage = 4096
)

// Events returns the history of an operation after an event, 0 for all of it. It ends with the last
// stored event; Watch waits for more. The last pair may hold an error: ErrNotFound for the
// operation, or the context's.
func (c *Catalog) Events(ctx context.Context, id OperationID, afterSeq int64) iter.Seq2[Event,
	error] {
	return func(yield func(Event, error) bool) {
		for {
			page, _, err := c.readEvents(ctx, id, afterSeq)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				afterSeq = e.Seq
			}
			if len(page) < eventPage {
				return
			}
		}
	}
}

// readEvents returns the next page of events and, as of the same moment, the state of the
// operation.
func (c *Catalog) readEvents(ctx context.Context, id OperationID, afterSeq int64) (page []Event,
	state State, err error) {
	err = c.view(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return ErrNotFound
		}
		op, err := decodeOperation(b.Get(keyRecord))
		if err != nil {
			return err
		}
		state = op.State
		events, err := operationBucket(b, bucketEvents)
		if err != nil {
			return err
		}
		cursor := events.Cursor()
		for k, v := cursor.Seek(sequenceKey(uint64(max(afterSeq, 0)) + 1)); k != nil &&
			len(page) < eventPage; k, v = cursor.Next() {
			e, err := decodeEvent(v)
			if err != nil {
				return err
			}
			page = append(page, e)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("read events of operation %s: %w", id, err)
	}
	return page, state, nil
}

// emit appends events to the history of an operation.
func (c *Catalog) emit(ctx context.Context, id OperationID, events []Event) error {
	return c.updateOperation(ctx, id, func(*opTx) ([]Event, error) { return events, nil })
}

// appendEvents numbers and stores events, in the transaction of the change that they report: there
// is no change without its event.
func (o *opTx) appendEvents(list []Event) error {
	if len(list) == 0 {
		return nil
	}
	events, err := o.bucket(bucketEvents)
	if err != nil {
		return err
	}
	for _, e := range list {
		seq, err := events.NextSequence()
		if err != nil {
			return err
		}
		e.Seq, e.Time, e.Message = int64(seq), o.op.Updated, shorten(e.Message)
		if err := e.check(); err != nil {
			return err
		}
		value, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := events.Put(sequenceKey(seq), value); err != nil {
			return err
		}
		o.change.Events = append(o.change.Events, e)
	}
	return nil
}

func (e Event) check() error {
	if e.Seq < 1 {
		return fmt.Errorf("event number %d: want at least 1", e.Seq)
	}
	if (e.Type == EventFinding) != (e.Finding != nil) {
		return fmt.Errorf("event of type %q: a finding must come with a finding, and only with one",
			e.Type)
	}
	return oneOf("stored event type", e.Type, EventOperation, EventUnit, EventStep, EventFinding,
		EventMessage)
}

func decodeEvent(value []byte) (Event, error) {
	return decode[Event]("event", value)
}

// shorten limits a text to maxMessage and makes it valid UTF-8, which JSON and gRPC need.
func shorten(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage] + " …"
	}
	return strings.ToValidUTF8(text, "")
}

// FindingEvent returns the event that reports a finding about a unit, or about no unit when unit
// is empty.
func FindingEvent(unit string, f object.Finding) Event {
	f.Unit = ""
	return Event{Type: EventFinding, Unit: unit, Finding: &f}
}
