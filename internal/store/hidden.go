package store

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// mostOlderHeads is how many versions of a record below the current one are read at most. The
// oldest ones are read first: what somebody wrote over a record lies above it.
const mostOlderHeads = 8

// HiddenPins lists the snapshots whose pins somebody hid with a delete marker in a versioned
// bucket. RemovePin removes all versions of a pin, so that what is below a marker was not
// unpinned. None in a bucket without versions, or with credentials that may not list them.
func (s *Store) HiddenPins(ctx context.Context) (map[EnvelopeKey]bool, error) {
	pins := map[EnvelopeKey]bool{}
	return pins, s.overlaid(ctx, record.PinFolder, func(_ bucket.Versioned, key string,
		list []bucket.Version) error {
		k, err := ParseEnvelopeKey(layout.EnvelopeFolder + strings.TrimPrefix(key, record.PinFolder))
		if err == nil && list[0].Deleted {
			pins[k] = true
		}
		return nil
	})
}

// overlaid calls fn with each key below a prefix that has data below its current version, which
// is what somebody wrote over it or a delete marker. Keys come in descending order, and the
// versions of each from the newest to the oldest. Everything that removes a key from a store
// removes all its versions. None in a bucket without versions, or with credentials that may not
// list them.
func (s *Store) overlaid(ctx context.Context, prefix string, fn func(b bucket.Versioned, key string,
	list []bucket.Version) error) error {
	b, ok := s.bucket.(bucket.Repairer)
	if !ok {
		return nil
	}
	type found struct {
		key  string
		list []bucket.Version
	}
	var all []found
	versioned, err := b.HasVersions(ctx)
	if err == nil && versioned {
		err = b.ListVersions(ctx, prefix, func(key string, list []bucket.Version) error {
			if slices.ContainsFunc(list, func(v bucket.Version) bool { return !v.Current && !v.Deleted }) {
				all = append(all, found{key, slices.Clone(list)})
			}
			return nil
		})
	}
	if errors.Is(err, ErrDenied) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range slices.Backward(all) {
		if err := fn(b, f.key, f.list); err != nil {
			return err
		}
	}
	return nil
}

// HiddenHead is the head of a record of an operation that somebody hid.
type HiddenHead struct {
	Key  OperationRecordKey
	Head OperationHead
}

// HiddenOperations returns the records of operations that somebody hid in a versioned bucket,
// with a delete marker or by writing over them: of each operation the newest one that a trusted
// key signed. None in a bucket without versions, or with credentials that may not list them. It
// needs no identity. Errors: those of the bucket, and ErrDenied when the credentials may not read
// versions.
func (s *Store) HiddenOperations(ctx context.Context) (heads []HiddenHead, err error) {
	err = s.overlaid(ctx, layout.OperationFolder, func(b bucket.Versioned, key string,
		list []bucket.Version) error {
		k, ok := record.ParseOperationKey(key)
		if !ok || k.Plain == s.Encrypted() ||
			len(heads) > 0 && heads[len(heads)-1].Key.Operation == k.Operation {
			return nil // of an operation the newest record comes first
		}
		head, found, err := s.olderHead(ctx, b, key, list)
		if found {
			heads = append(heads, HiddenHead{k, head})
		}
		return err
	})
	return heads, err
}

// olderHead returns the head of the oldest version below the current one that a trusted key signed.
func (s *Store) olderHead(ctx context.Context, b bucket.Versioned, key string,
	list []bucket.Version) (head OperationHead, found bool, err error) {
	read := 0
	for _, v := range slices.Backward(list) {
		if v.Current || v.Deleted {
			continue
		}
		if read++; read > mostOlderHeads {
			break
		}
		r, err := b.GetVersion(ctx, key, v.ID)
		if IsMissing(err) { // removed since it was listed
			continue
		}
		if err != nil {
			return OperationHead{}, false, err
		}
		line, err := readHead(r)
		if err != nil {
			return OperationHead{}, false, err
		}
		if o, err := s.openOperationHead(key, line); err == nil {
			return o.OperationHead, true, nil
		}
	}
	return OperationHead{}, false, nil
}

// readHead reads the first line of a record, with its newline, and closes r. It reads one byte more
// than a head may have.
func readHead(r io.ReadCloser) (line []byte, err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	line, err = bufio.NewReader(io.LimitReader(r, maxHead+1)).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}
