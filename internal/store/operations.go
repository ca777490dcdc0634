package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/seal"
)

// OperationRecordKey names one record of an operation's journal:
// "operations/<id>/<seq>-<state>.json.zst.age". Keys of one operation sort by number.
type OperationRecordKey struct {
	Operation string
	Seq       int64
	State     string

	plain bool // of a plain store, without the last suffix
}

const (
	seqDigits = 8
	maxSeq    = 99999999
	maxHead   = 64 << 10 // first line of a record
)

// String returns the key as it is in the bucket.
func (k OperationRecordKey) String() string {
	suffix := ".json.zst.age"
	if k.plain {
		suffix = ".json.zst"
	}
	return fmt.Sprintf("%s%s/%0*d-%s%s", layout.OperationFolder, k.Operation, seqDigits, k.Seq,
		k.State,
		suffix)
}

func (k OperationRecordKey) check() error {
	if !layout.ValidSource(k.Operation) {
		return fmt.Errorf("operation %.40q is not an id", k.Operation)
	}
	if k.Seq < 1 || k.Seq > maxSeq {
		return fmt.Errorf("number %d is not within 1 and %d", k.Seq, maxSeq)
	}
	if k.State == "" || len(k.State) > 64 ||
		strings.Trim(k.State, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("state %.40q is not lower-case letters, digits and dashes", k.State)
	}
	return nil
}

// parseOperationRecordKey reads a key; anything but the exact form is no key.
func parseOperationRecordKey(s string) (OperationRecordKey, bool) {
	rest, ok := strings.CutPrefix(s, layout.OperationFolder)
	if !ok {
		return OperationRecordKey{}, false
	}
	var k OperationRecordKey
	k.Operation, rest, _ = strings.Cut(rest, "/")
	rest, encrypted := strings.CutSuffix(rest, ".age")
	k.plain = !encrypted
	digits, state, _ := strings.Cut(rest, "-")
	k.State = strings.TrimSuffix(state, ".json.zst")
	seq, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return OperationRecordKey{}, false
	}
	k.Seq = seq
	return k, k.check() == nil && k.String() == s
}

// operationRecord is what is signed of a record: its place, so that it cannot be moved under
// another key, and its text by hash.
type operationRecord struct {
	Format  int    `json:"format"`
	StoreID string `json:"storeID"`
	Key     string `json:"key"`
	SHA256  string `json:"sha256"` // of the text
}

// PutOperationRecord stores a record of an operation, signed if there is a signing key: whoever
// resumes goes by it. A record with that key being there already is success, so it may run twice.
func (s *Store) PutOperationRecord(ctx context.Context, operation string, seq int64, state string,
	text []byte) error {
	if err := s.mayWrite(); err != nil {
		return err
	}
	k := OperationRecordKey{Operation: operation, Seq: seq, State: state, plain: !s.Encrypted()}
	if err := k.check(); err != nil {
		return fmt.Errorf("write operation record: %w", err)
	}
	if most := s.limits.maxPlain - maxHead; int64(len(text)) > most {
		return fmt.Errorf("write operation record %s: it has %d bytes, more than the %d of the format", k,
			len(text), most)
	}
	head, err := s.encodeSigned(k.String(), operationRecord{Format: Format, StoreID: s.ID(),
		Key: k.String(), SHA256: layout.SHA256Hex(text)})
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
	if err := s.still(ctx); err != nil {
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
		if k, ok := parseOperationRecordKey(i.Key); ok && k.plain == !s.Encrypted() {
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
	k.plain = !s.Encrypted()
	if err := k.check(); err != nil {
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
	payload, trust, by, err := s.openSigned(key, head)
	if err != nil {
		return nil, err
	}
	if !s.vouched(trust) {
		return nil, &TrustError{Key: key, Trust: trust, KeyID: by}
	}
	var record operationRecord
	if err := document.Decode(payload, &record); err != nil {
		return nil, &CorruptError{Key: key, Reason: "payload: " + err.Error()}
	}
	if record.StoreID != s.ID() {
		return nil, &BucketError{Op: "get", Key: key, Class: ErrForeign,
			Err: fmt.Errorf("its store id is %.40q", record.StoreID)}
	}
	if record.Key != key {
		return nil, &CorruptError{Key: key, Reason: fmt.Sprintf("it is the record %.200q", record.Key)}
	}
	if record.SHA256 != layout.SHA256Hex(text) {
		return nil, &CorruptError{Key: key, Reason: "its text is not what was signed"}
	}
	return text, nil
}
