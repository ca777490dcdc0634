package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

const maxPin = 64 << 10

// PutPin pins a snapshot. One that is pinned already stays as it is: success, so it may run twice.
// ErrNotFound when there is no such snapshot; it may be damaged.
func (s *Store) PutPin(ctx context.Context, k EnvelopeKey, reason string, now time.Time) error {
	if !document.Printable(reason) {
		return &UsageError{Text: "pin snapshot: the reason does not print, or is longer than 512 bytes"}
	}
	if _, err := s.bucket.Stat(ctx, k.String()); err != nil {
		return err
	}
	p := Pin{Header: s.signer().Header(record.PinKey(k)), Source: k.Source, ID: k.ID,
		Time: now.UTC().Truncate(time.Millisecond), Reason: reason}
	if err := s.putSigned(ctx, record.PinKey(k), &p, maxPin); err != nil &&
		!errors.Is(err, ErrExists) {
		return err
	}
	// A prune that listed the pins just before this write may have removed the snapshot.
	_, err := s.bucket.Stat(ctx, k.String())
	return err
}

// GetPin reads a pin, whether its signature is trusted or not. Errors: ErrNotFound when the
// snapshot is not pinned; *CorruptError, *FormatError and ErrForeign when it is pinned all the
// same.
func (s *Store) GetPin(ctx context.Context, k EnvelopeKey) (Pin, error) {
	data, err := bucket.ReadAll(ctx, s.bucket, record.PinKey(k), maxPin)
	if err != nil {
		return Pin{}, err
	}
	return s.openPin(k, data)
}

func (s *Store) openPin(k EnvelopeKey, data []byte) (Pin, error) {
	var p Pin
	if _, err := s.snapshotSigner().Open(record.PinKey(k), data, &p); err != nil {
		return Pin{}, err
	}
	if p.Source != k.Source || p.ID != k.ID {
		return Pin{}, &CorruptError{Key: p.Key, Reason: "it is the pin of another snapshot"}
	}
	p.Time = p.Time.UTC()
	return p, nil
}

// Pinned reports whether there is a pin for a snapshot, whatever its content.
func (s *Store) Pinned(ctx context.Context, k EnvelopeKey) (bool, error) {
	_, err := s.bucket.Stat(ctx, record.PinKey(k))
	if IsMissing(err) {
		return false, nil
	}
	return err == nil, err
}

// Pins lists the snapshots that are pinned, of one source, or of all when source is "", without
// reading the pins. Files with other names are passed over.
func (s *Store) Pins(ctx context.Context, source string) (map[EnvelopeKey]bool, error) {
	prefix := record.PinFolder
	if source != "" {
		if !layout.ValidSource(source) {
			return nil, fmt.Errorf("list pins: source %.40q is not a UID", source)
		}
		prefix += source + "/"
	}
	pins := map[EnvelopeKey]bool{}
	err := s.bucket.List(ctx, prefix, func(i bucket.Info) error {
		if k, err := ParseEnvelopeKey(layout.EnvelopeFolder + strings.TrimPrefix(i.Key,
			record.PinFolder)); err == nil {
			pins[k] = true
		}
		return nil
	})
	return pins, err
}

// RemovePin removes a pin. One that does not exist is success. ErrRetained.
func (s *Store) RemovePin(ctx context.Context, k EnvelopeKey) error {
	return s.remove(ctx,
		record.PinKey(k))
}
