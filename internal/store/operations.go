package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/store/seal"
)

const maxHead = 64 << 10 // first line of a record

// OperationRecord is a record of an operation, sealed and ready to be stored. It is sealed once:
// two seals of one text differ, and a writer has to recognize its own record after an answer was
// lost.
type OperationRecord struct {
	Key    OperationRecordKey
	SHA256 string // of the stored bytes
	stored []byte
}

// CanRecord returns nil when records of operations can be stored here: they are signed, encrypted,
// and written on the condition that their number is free. Errors: *FenceError or *UsageError,
// which say what is missing; those of the bucket.
func (s *Store) CanRecord(ctx context.Context) error {
	if err := s.mayWriteOperation(); err != nil {
		return err
	}
	return s.CanFence(ctx)
}

// SealOperationRecord encrypts and signs a record under its number. The head is signed and
// readable by anybody, the text is signed and encrypted.
func (s *Store) SealOperationRecord(operation string, seq int64, head OperationHead, text []byte) (
	OperationRecord, error) {
	fail := func(err error) (OperationRecord, error) {
		return OperationRecord{}, fmt.Errorf("write operation record: %w", err)
	}
	k := OperationRecordKey{Operation: operation, Seq: seq, Plain: !s.Encrypted()}
	if err := errors.Join(s.mayWriteOperation(), k.Validate()); err != nil {
		return fail(err)
	}
	if int64(len(text)) > s.limits.maxPlain {
		return fail(fmt.Errorf("%s has %d bytes, more than the %d of the format", k, len(text),
			s.limits.maxPlain))
	}
	sealed, err := seal.Document(text, s.encrypter())
	if err != nil {
		return fail(err)
	}
	head.Time = head.Time.UTC().Truncate(time.Millisecond)
	o := record.Operation{Header: s.signer().Header(k.String()), SHA256: layout.SHA256Hex(sealed),
		OperationHead: head}
	if err := o.Validate(); err != nil {
		return fail(err)
	}
	line, err := s.signer().Encode(k.String(), &o, maxHead)
	if err != nil {
		return fail(err)
	}
	stored := append(line, sealed...)
	return OperationRecord{Key: k, SHA256: layout.SHA256Hex(stored), stored: stored}, nil
}

// PutOperationRecord stores a record if its number is free. The very same record may be put twice.
// Errors: ErrExists when the number has another record; those of CanRecord and of the bucket.
func (s *Store) PutOperationRecord(ctx context.Context, r OperationRecord) error {
	if err := s.CanRecord(ctx); err != nil {
		return err
	}
	if err := s.checkStoreID(ctx); err != nil {
		return fmt.Errorf("write operation record: %w", err)
	}
	err := s.bucket.Put(ctx, r.Key.String(), r.stored)
	if !errors.Is(err, ErrExists) {
		return err
	}
	same, readErr := s.HasOperationRecord(ctx, r.Key, r.SHA256)
	if readErr != nil {
		return readErr
	}
	if same {
		return nil
	}
	return err
}

// HasOperationRecord reports whether the record under a number is the one with these stored bytes.
// ErrNotFound when the number is free. It needs no key.
func (s *Store) HasOperationRecord(ctx context.Context, k OperationRecordKey, sha256 string) (bool,
	error) {
	k.Plain = !s.Encrypted()
	stored, err := bucket.ReadAll(ctx, s.bucket, k.String(), s.limits.maxStored+maxHead)
	if err != nil {
		return false, err
	}
	return layout.SHA256Hex(stored) == sha256, nil
}

// Operations lists the ids of operations that have records, sorted.
func (s *Store) Operations(ctx context.Context) ([]string, error) {
	keys, err := s.operationRecords(ctx, layout.OperationFolder)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.Operation)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// OperationRecords lists the records of an operation without reading them, sorted by number. Files
// with other names, and those of the other kind of store, are passed over.
func (s *Store) OperationRecords(ctx context.Context, operation string) ([]OperationRecordKey,
	error) {
	if !layout.ValidSource(operation) {
		return nil, fmt.Errorf("list operation records: operation %.40q is not an id", operation)
	}
	return s.operationRecords(ctx, layout.OperationFolder+operation+"/")
}

func (s *Store) operationRecords(ctx context.Context, prefix string) ([]OperationRecordKey, error) {
	var keys []OperationRecordKey
	err := s.bucket.List(ctx, prefix, func(i bucket.Info) error {
		if k, ok := record.ParseOperationKey(i.Key); ok && k.Plain == !s.Encrypted() {
			keys = append(keys, k)
		}
		return nil
	})
	return keys, err
}

// OperationRecordGone reports whether a record that was listed no longer exists, as SnapshotGone
// does.
func (s *Store) OperationRecordGone(ctx context.Context, k OperationRecordKey) (bool, error) {
	k.Plain = !s.Encrypted()
	return s.gone(ctx, k.String())
}

// GetOperationHead returns the head of a record. It needs no identity. The head must be signed by
// a trusted key: otherwise a *TrustError. A caller that opened a plain store as such, and without
// trusted keys, vouches for what is in it. Other errors: ErrNotFound, *CorruptError, *FormatError,
// ErrForeign.
func (s *Store) GetOperationHead(ctx context.Context, k OperationRecordKey) (OperationHead,
	error) {
	k.Plain = !s.Encrypted()
	if err := k.Validate(); err != nil {
		return OperationHead{}, fmt.Errorf("read operation record: %w", err)
	}
	r, err := s.bucket.Get(ctx, k.String())
	if err != nil {
		return OperationHead{}, err
	}
	line, err := readHead(r)
	if err != nil {
		return OperationHead{}, err
	}
	o, err := s.openOperationHead(k.String(), line)
	return o.OperationHead, err
}

// GetOperationRecord returns the head and the text of a record, and the SHA-256 of its stored
// bytes, which the next record repeats: what a resume does. Errors: those of GetOperationHead;
// *KeyError when no identity fits. The signature is checked before anything is decrypted.
func (s *Store) GetOperationRecord(ctx context.Context, k OperationRecordKey) (head OperationHead,
	text []byte, sha256 string, err error) {
	k.Plain = !s.Encrypted()
	if err := k.Validate(); err != nil {
		return OperationHead{}, nil, "", fmt.Errorf("read operation record: %w", err)
	}
	stored, err := bucket.ReadAll(ctx, s.bucket, k.String(), s.limits.maxStored+maxHead)
	if err != nil {
		return OperationHead{}, nil, "", err
	}
	head, text, err = s.openOperationRecord(k.String(), stored)
	return head, text, layout.SHA256Hex(stored), err
}

// openOperationRecord checks and decrypts what is stored under key.
func (s *Store) openOperationRecord(key string, stored []byte) (OperationHead, []byte, error) {
	line, sealed, _ := bytes.Cut(stored, []byte("\n"))
	o, err := s.openOperationHead(key, append(line, '\n'))
	if err != nil {
		return OperationHead{}, nil, err
	}
	if o.SHA256 != layout.SHA256Hex(sealed) {
		return OperationHead{}, nil, &CorruptError{Key: key, Reason: "its text is not what was signed"}
	}
	r, err := seal.Open(key, sealed, s.decrypter(s.Encrypted()), s.limits.maxPlain)
	if err != nil {
		return OperationHead{}, nil, bucket.AsCorrupt(key, err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return OperationHead{}, nil, bucket.AsCorrupt(key, err)
	}
	return o.OperationHead, text, nil
}

// openOperationHead checks the first line of a record, with its newline.
func (s *Store) openOperationHead(key string, line []byte) (record.Operation, error) {
	var o record.Operation
	if len(line) > maxHead {
		return o, &CorruptError{Key: key, Reason: fmt.Sprintf("its first line is larger than %d bytes",
			maxHead)}
	}
	signature, err := s.signer().Open(key, line, &o)
	if err != nil {
		return record.Operation{}, err
	}
	if !s.accepted(signature.Trust) {
		return record.Operation{}, signature.Untrusted(key)
	}
	o.Time = o.Time.UTC()
	return o, nil
}

// RemoveOperation removes the records of an operation, oldest first: a removal that ends halfway
// leaves the newest one, which says that the operation is final. The caller has made sure of that
// for the record with the number newest; nothing is removed when there is a newer one, since the
// operation has begun again. Records that somebody hid go with the others. It returns how many are
// gone.
func (s *Store) RemoveOperation(ctx context.Context, operation string, newest int64) (int, error) {
	keys, err := s.OperationRecords(ctx, operation)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	if err := s.overlaid(ctx, layout.OperationFolder+operation+"/", func(_ bucket.Versioned,
		key string, _ []bucket.Version) error {
		if k, ok := record.ParseOperationKey(key); ok && k.Plain == !s.Encrypted() &&
			!slices.Contains(keys, k) {
			keys = append(keys, k)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	slices.SortFunc(keys, func(a, b OperationRecordKey) int { return cmp.Compare(a.Seq, b.Seq) })
	if keys[len(keys)-1].Seq > newest {
		return 0, nil
	}
	for i, k := range keys {
		if err := s.remove(ctx, k.String()); err != nil {
			return i, err
		}
	}
	return len(keys), nil
}
