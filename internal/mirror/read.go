package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// reads is how many records are read at once.
const reads = 8

// Found is an operation that has a mirror in the store.
type Found struct {
	ID catalog.OperationID
	// Seq and Head are of the newest record.
	Seq  int64
	Head store.OperationHead
	// Problem says why the newest record cannot be read; Head is empty then.
	Problem error

	sha256 string // of the newest record, as stored; Read sets it
}

// List returns the operations that have a mirror in a store, newest first. It needs no identity.
func List(ctx context.Context, st *store.Store) ([]Found, error) {
	found, err := list(ctx, st)
	return slices.DeleteFunc(found, func(f Found) bool {
		return errors.Is(f.Problem, store.ErrNotFound) // removed since it was listed
	}), err
}

// list returns what List does, and also the operations whose newest record was listed and not
// found.
func list(ctx context.Context, st *store.Store) ([]Found, error) {
	ids, err := st.Operations(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]Found, len(ids))
	g, gctx := task.WithContext(ctx)
	g.SetLimit(reads)
	for i, id := range ids {
		g.Go(func() (err error) {
			found[i], err = Newest(gctx, st, catalog.OperationID(id))
			if err != nil && gctx.Err() == nil && !errors.Is(err, store.ErrUnreachable) {
				found[i], err = Found{ID: catalog.OperationID(id), Problem: err}, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f Found) bool {
		_, err := catalog.ParseOperationID(string(f.ID))
		return err != nil
	})
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(string(b.ID), string(a.ID)) })
	return found, nil
}

// Newest reads the head of the newest record of an operation. store.ErrNotFound when it has none;
// *store.TrustError and the other errors of store.GetOperationHead.
func Newest(ctx context.Context, st *store.Store, id catalog.OperationID) (Found, error) {
	keys, err := st.OperationRecords(ctx, string(id))
	if err != nil {
		return Found{}, err
	}
	if len(keys) == 0 {
		return Found{}, fmt.Errorf("mirror of operation %s: %w", id, store.ErrNotFound)
	}
	key := keys[len(keys)-1]
	head, err := st.GetOperationHead(ctx, key)
	return Found{ID: id, Seq: key.Seq, Head: head}, err
}

// read is a record that was read.
type read struct {
	key     string
	sha256  string // of the stored bytes
	head    store.OperationHead
	changes []catalog.Change
	more    bool
}

// checkChain makes sure that each record was written after the one before it: of two hosts that
// wrote one number the storage may show the record that it had refused.
func checkChain(records []read) error {
	previous := ""
	for _, r := range records {
		if r.head.Previous != previous {
			return &store.CorruptError{Key: r.key, Reason: "it was not written after the record " +
				"that is before it here"}
		}
		previous = r.sha256
	}
	return nil
}

// Read returns the changes that make an operation. Errors: store.ErrNotFound when it has no
// mirror; *store.KeyError when no identity fits; *store.TrustError; *store.CorruptError, also for
// a record that is missing.
func Read(ctx context.Context, st *store.Store, id catalog.OperationID) ([]catalog.Change, Found,
	error) {
	keys, err := st.OperationRecords(ctx, string(id))
	if err != nil {
		return nil, Found{}, err
	}
	if len(keys) == 0 {
		return nil, Found{}, fmt.Errorf("mirror of operation %s: %w", id, store.ErrNotFound)
	}
	records := make([]read, len(keys))
	g, gctx := task.WithContext(ctx)
	g.SetLimit(reads)
	for i, key := range keys {
		if key.Seq != int64(i)+1 {
			return nil, Found{}, &store.CorruptError{Key: key.String(),
				Reason: fmt.Sprintf("the record before it is missing: want number %d", i+1)}
		}
		g.Go(func() error {
			head, data, sum, err := st.GetOperationRecord(gctx, key)
			if err != nil {
				return err
			}
			records[i].key, records[i].sha256, records[i].head = key.String(), sum, head
			if records[i].changes, records[i].more, err = parseText(data); err != nil {
				return &store.CorruptError{Key: key.String(), Reason: err.Error()}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, Found{}, err
	}
	newest := records[len(records)-1]
	found := Found{ID: id, Seq: keys[len(keys)-1].Seq, Head: newest.head, sha256: newest.sha256}
	if err := checkChain(records); err != nil {
		return nil, found, err
	}
	changes, err := fold(records)
	return changes, found, err
}

// Import brings an operation from its mirror into a catalog, and replaces what that has of it. An
// operation that another host was running is stopped here; a resume takes it over. Errors: those
// of Read and catalog.Import.
// location is the name that this host has for the store.
func Import(ctx context.Context, c *catalog.Catalog, st *store.Store, location string,
	id catalog.OperationID) (catalog.Operation, error) {
	changes, found, err := Read(ctx, st, id)
	if err != nil {
		return catalog.Operation{}, err
	}
	state := catalog.MirrorState{Seq: found.Seq, Last: found.sha256, From: found.Seq,
		Imported: time.Now().UTC()}
	return c.Import(ctx, id, changes, state, func(op *catalog.Operation) {
		op.Location = location
		if op.State == catalog.Stopped { // the daemon that left it may resume it by itself
			op.StopCause = catalog.StopElsewhere
		}
		if op.State != catalog.Running {
			return
		}
		op.State, op.StopCause = catalog.Stopped, catalog.StopElsewhere
		op.Message = fmt.Sprintf("host %s ran it when it wrote its last record, %s", found.Head.Host,
			found.Head.Time.Format(time.RFC3339))
		op.Code = "INCOMPLETE"
	})
}
