package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/store/seal"
)

const maxHead = 64 << 10 // first line of a record

// PutOperationRecord stores a record of an operation, signed if there is a signing key: a resume
// does what the record says. A record that exists under that key is success, so it may run twice.
func (s *Store) PutOperationRecord(ctx context.Context, operation string, seq int64, state string,
	text []byte) error {
	if err := s.mayWrite(); err != nil {
		return err
	}
	k := OperationRecordKey{Operation: operation, Seq: seq, State: state, Plain: !s.Encrypted()}
	if err := k.Validate(); err != nil {
		return fmt.Errorf("write operation record: %w", err)
	}
	if most := s.limits.maxPlain - maxHead; int64(len(text)) > most {
		return fmt.Errorf("write operation record %s: it has %d bytes, more than the %d of the format", k,
			len(text), most)
	}
	head, err := s.signer().Encode(k.String(), record.Operation{Header: s.signer().Header(k.String()),
		SHA256: layout.SHA256Hex(text)}, maxHead)
	if err != nil {
		return fmt.Errorf("write operation record: %w", err)
	}
	enc, err := seal.NewEncoder()
	if err != nil {
		return fmt.Errorf("write operation record: %w", err)
	}
	var stored bytes.Buffer
	w, err := seal.NewWriter(&stored, enc, s.encrypter(), nil)
	if err == nil {
		_, err = w.Write(append(head, text...))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("write operation record: %w", err)
	}
	if err := s.checkStoreID(ctx); err != nil {
		return fmt.Errorf("write operation record: %w", err)
	}
	if err := s.bucket.Put(ctx, k.String(), stored.Bytes()); !errors.Is(err, ErrExists) {
		return err
	}
	return nil
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

// GetOperationRecord returns the text of a record. The record must be signed by a trusted key,
// since it says what to do: otherwise a *TrustError. Only who opened a plain store as such, and
// without trusted keys, vouches for what is in it. Other errors: ErrNotFound, *KeyError when no
// identity fits, *CorruptError, *FormatError, ErrForeign.
func (s *Store) GetOperationRecord(ctx context.Context, k OperationRecordKey) ([]byte, error) {
	k.Plain = !s.Encrypted()
	if err := k.Validate(); err != nil {
		return nil, fmt.Errorf("read operation record: %w", err)
	}
	key := k.String()
	stored, err := bucket.ReadAll(ctx, s.bucket, key, s.limits.maxStored)
	if err != nil {
		return nil, err
	}
	r, err := seal.Open(key, stored, s.decrypter(s.Encrypted()), s.limits.maxPlain)
	if err != nil {
		return nil, bucket.AsCorrupt(key, err)
	}
	defer r.Close()
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, bucket.AsCorrupt(key, err)
	}
	return s.openOperationRecord(key, plain)
}

// openOperationRecord checks what GetOperationRecord has decrypted and decompressed.
func (s *Store) openOperationRecord(key string, plain []byte) ([]byte, error) {
	head, text, _ := bytes.Cut(plain, []byte("\n"))
	if len(head) > maxHead {
		return nil, &CorruptError{Key: key, Reason: fmt.Sprintf("its first line is larger than %d bytes",
			maxHead)}
	}
	payload, trust, keyID, err := s.signer().Verify(key, head)
	if err != nil {
		return nil, err
	}
	if !s.accepted(trust) {
		return nil, &TrustError{Key: key, Trust: trust, KeyID: keyID}
	}
	var r record.Operation
	if err := s.signer().Decode(key, payload, &r); err != nil {
		return nil, err
	}
	if r.SHA256 != layout.SHA256Hex(text) {
		return nil, &CorruptError{Key: key, Reason: "its text is not what was signed"}
	}
	return text, nil
}
