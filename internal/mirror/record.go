package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

const (
	// mostText is the most text of one record, well below the limit of the format.
	mostText = 8 << 20
	// mostItems is how many units, values, steps or events are in one piece, and mostChunks how many
	// chunks of a plan, each of 256 KiB at most.
	mostItems  = 10_000
	mostChunks = 16
)

// text is the text of a record.
type text struct {
	Changes []json.RawMessage `json:"changes"`
	// More says that the next record belongs to this one: neither counts without the other.
	More bool `json:"more,omitempty"`
}

func recordText(batch []piece, more bool) text {
	t := text{More: more}
	for _, p := range batch {
		t.Changes = append(t.Changes, p.text)
	}
	return t
}

// divide returns a change in pieces that fit in a record.
func divide(change catalog.Change, whole bool) ([]piece, error) {
	first := change
	first.Documents = nil
	list := []catalog.Change{first}
	if max(len(change.Units), len(change.Values), len(change.Steps), len(change.Events)) > mostItems {
		list = divideItems(change)
	}
	for _, d := range change.Documents {
		for i := 0; i == 0 || i < len(d.Chunks); i += mostChunks {
			some := d
			some.First, some.Chunks = i, d.Chunks[i:min(i+mostChunks, len(d.Chunks))]
			list = append(list, catalog.Change{Documents: []catalog.Document{some}})
		}
	}
	pieces := make([]piece, 0, len(list))
	for i, c := range list {
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		p := piece{text: text, whole: whole && i == 0}
		if c.Operation != nil {
			p.state = *c.Operation
		}
		pieces = append(pieces, p)
	}
	return pieces, nil
}

// divideItems returns a change without its documents in changes of at most mostItems units, values,
// steps or events. Values come before steps, as within a change.
func divideItems(change catalog.Change) []catalog.Change {
	list := []catalog.Change{{Operation: change.Operation}}
	for names := range slices.Chunk(slices.Sorted(maps.Keys(change.Units)), mostItems) {
		units := map[string]catalog.UnitState{}
		for _, name := range names {
			units[name] = change.Units[name]
		}
		list = append(list, catalog.Change{Units: units})
	}
	for values := range slices.Chunk(change.Values, mostItems) {
		list = append(list, catalog.Change{Values: values})
	}
	for steps := range slices.Chunk(change.Steps, mostItems) {
		list = append(list, catalog.Change{Steps: steps})
	}
	for events := range slices.Chunk(change.Events, mostItems) {
		list = append(list, catalog.Change{Events: events})
	}
	return list
}

// parseText reads the text of a record. The catalog checks the changes.
func parseText(data []byte) (changes []catalog.Change, more bool, err error) {
	var t text
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, false, err
	}
	for i, raw := range t.Changes {
		var change catalog.Change
		if err := json.Unmarshal(raw, &change); err != nil {
			return nil, false, fmt.Errorf("change %d: %w", i, err)
		}
		changes = append(changes, change)
	}
	return changes, t.More, nil
}

var errNoWhole = errors.New(
	"the mirror of the operation has no record that is whole: its host was " +
		"lost before the first step")

// fold returns the changes that make the operation, from the newest whole record on. Records that
// lack the one that belongs to them do not count: their host was lost while it wrote them.
func fold(records []read) ([]catalog.Change, error) {
	var groups [][]read
	var open []read
	for _, r := range records {
		if r.head.Whole {
			open = nil // what came before was never ended
		}
		if open = append(open, r); !r.more {
			groups, open = append(groups, open), nil
		}
	}
	begin := -1
	for i, g := range groups {
		if g[0].head.Whole {
			begin = i
		}
	}
	if begin < 0 {
		return nil, errNoWhole
	}
	var changes []catalog.Change
	for _, g := range groups[begin:] {
		for _, r := range g {
			changes = append(changes, r.changes...)
		}
	}
	return changes, nil
}
