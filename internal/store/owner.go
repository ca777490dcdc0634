package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Owner says which management cluster reconciles a workload cluster. The record with the highest
// epoch counts; whoever finds his own is behind has to keep that workload cluster paused, provided
// that a trusted key signed the record.
type Owner struct {
	// Format and StoreID are set by PutOwner.
	Format  int    `json:"format"`
	StoreID string `json:"storeID"`

	WorkloadID string    `json:"workloadID"`
	Workload   string    `json:"workload"`  // "namespace/name" of its Cluster, for people
	Owner      Source    `json:"owner"`     // UID and name of the management cluster
	Epoch      int64     `json:"epoch"`     // from 1; each hand-over adds
	Operation  string    `json:"operation"` // the move or restore that wrote this
	Time       time.Time `json:"time"`      // PutOwner cuts it to milliseconds, UTC
}

// SignedOwner is an ownership record as it was read.
type SignedOwner struct {
	Owner
	Trust Trust
	KeyID string // of the key that signed, as minisign prints it; a claim unless Trust is Trusted
	tag   string // of the bytes that were read
}

// RequireTrusted returns a *TrustError unless a trusted key signed the record.
func (o *SignedOwner) RequireTrusted() error {
	if o.Trust == Trusted {
		return nil
	}
	return &TrustError{Key: ownerKey(o.WorkloadID), Trust: o.Trust, KeyID: o.KeyID}
}

// Vouches tells whether a record is to be obeyed: a trusted key signed it, or it is of a plain
// store that was opened as such and without trusted keys, as with envelopes.
func (s *Store) Vouches(o SignedOwner) bool {
	return s.vouched(o.Trust)
}

const (
	ownerFolder = "owners/"
	ownerSuffix = ".json"
	maxOwner    = 64 << 10
)

func ownerKey(workloadID string) string { return ownerFolder + workloadID + ownerSuffix }

// check holds for what is written and for what is read.
func (o *Owner) check() error {
	if !layout.ValidSource(o.WorkloadID) {
		return fmt.Errorf("workload id %.40q is not a UID", o.WorkloadID)
	}
	if !layout.ValidSource(o.Owner.UID) {
		return fmt.Errorf("owner %.40q is not a UID", o.Owner.UID)
	}
	if o.Epoch < 1 {
		return errors.New("epoch is less than 1")
	}
	if !o.Time.Equal(o.Time.Truncate(time.Millisecond)) || o.Time.UTC().Year() < 1970 ||
		o.Time.UTC().Year() > 9999 {
		return errors.New("time is not in whole milliseconds, or out of range")
	}
	if namespace, name, ok := strings.Cut(o.Workload, "/"); !ok || namespace == "" || name == "" {
		return fmt.Errorf("workload %.80q is not a namespace and a name", o.Workload)
	}
	for _, text := range []string{o.Workload, o.Owner.Name, o.Owner.KubernetesVersion, o.Operation} {
		if !printable(text) {
			return fmt.Errorf("%.80q does not print", text)
		}
	}
	return nil
}

// GetOwner reads and checks the ownership record of a workload cluster: the signature, then that it
// is what its name says and of this store. It does not require a signature: see
// SignedOwner.RequireTrusted. A bucket that cannot fence is read, too. Errors: ErrNotFound,
// *CorruptError, *FormatError, ErrForeign.
func (s *Store) GetOwner(ctx context.Context, workloadID string) (SignedOwner, error) {
	if !layout.ValidSource(workloadID) {
		return SignedOwner{}, fmt.Errorf("read owner: workload id %.40q is not a UID", workloadID)
	}
	key := ownerKey(workloadID)
	c, ok := s.bucket.(bucket.Conditional)
	if !ok {
		data, err := bucket.ReadAll(ctx, s.bucket, key, maxOwner)
		if err != nil {
			return SignedOwner{}, err
		}
		return s.openOwner(key, data, "")
	}
	data, tag, err := c.GetTagged(ctx, key)
	if err != nil {
		return SignedOwner{}, err
	}
	return s.openOwner(key, data, tag)
}

func (s *Store) openOwner(key string, data []byte, tag string) (SignedOwner, error) {
	if len(data) > maxOwner {
		return SignedOwner{}, &CorruptError{Key: key, Reason: fmt.Sprintf("it is larger than %d bytes",
			maxOwner)}
	}
	payload, trust, by, err := s.openSigned(key, data)
	if err != nil {
		return SignedOwner{}, err
	}
	var o Owner
	if err := document.Decode(payload, &o); err != nil {
		return SignedOwner{}, &CorruptError{Key: key, Reason: "payload: " + err.Error()}
	}
	if err := o.check(); err != nil {
		return SignedOwner{}, &CorruptError{Key: key, Reason: "payload: " + err.Error()}
	}
	if o.StoreID != s.ID() {
		return SignedOwner{}, &BucketError{Op: "get", Key: key, Class: ErrForeign,
			Err: fmt.Errorf("its store id is %.40q", o.StoreID)}
	}
	if ownerKey(o.WorkloadID) != key {
		return SignedOwner{}, &CorruptError{Key: key, Reason: "it is the record of " + o.WorkloadID}
	}
	o.Time = o.Time.UTC()
	return SignedOwner{Owner: o, Trust: trust, KeyID: by, tag: tag}, nil
}

// openSigned splits a document of payload and signature, checks the signature, and then that the
// payload is of this format.
func (s *Store) openSigned(key string, data []byte) (payload []byte, trust Trust, by string,
	err error) {
	payload, signature, err := decodeEnvelopeFile(data)
	if err != nil {
		return nil, "", "", &CorruptError{Key: key, Reason: err.Error()}
	}
	trust, by, err = s.keys.Verify(payload, signature)
	if err != nil {
		return nil, "", "", &CorruptError{Key: key, Reason: err.Error()}
	}
	found, err := document.FormatOf(payload)
	if err != nil {
		return nil, "", "", &CorruptError{Key: key, Reason: "payload: " + err.Error()}
	}
	if found != Format {
		return nil, "", "", &FormatError{Key: key, Format: found}
	}
	return payload, trust, by, nil
}

// encodeSigned makes a document of payload and signature.
func (s *Store) encodeSigned(key string, v any) ([]byte, error) {
	payload, err := document.Encode(v)
	if err != nil {
		return nil, err
	}
	payload = bytes.TrimSuffix(payload, []byte("\n"))
	signature, err := s.keys.Sign(payload, "mgmtd "+key)
	if err != nil {
		return nil, err
	}
	return document.Encode(envelopeFile{Payload: string(payload), Signature: signature})
}

// PutOwner writes the record that follows previous, which GetOwner or PutOwner returned; nil when
// there must be none yet. It sets Format and StoreID and signs. ErrConflict when the record there
// is not previous any more; *FenceError when this store cannot fence; an epoch that is not above
// that of previous is refused. Whether previous is trusted is for the caller to look at.
func (s *Store) PutOwner(ctx context.Context, next Owner, previous *SignedOwner) (SignedOwner,
	error) {
	c, err := s.fencing(ctx)
	if err != nil {
		return SignedOwner{}, err
	}
	next.Format, next.StoreID, next.Time = Format, s.ID(), next.Time.UTC().Truncate(time.Millisecond)
	if err := next.check(); err != nil {
		return SignedOwner{}, fmt.Errorf("write owner: %w", err)
	}
	key, tag := ownerKey(next.WorkloadID), ""
	if previous != nil {
		if previous.WorkloadID != next.WorkloadID || previous.tag == "" {
			return SignedOwner{}, fmt.Errorf("write owner: the record before is not one that was read of %s",
				next.WorkloadID)
		}
		if next.Epoch <= previous.Epoch {
			return SignedOwner{}, fmt.Errorf("write owner of %s: epoch %d is not above %d", next.WorkloadID,
				next.Epoch, previous.Epoch)
		}
		tag = previous.tag
	}
	data, err := s.encodeSigned(key, next)
	if err == nil && len(data) > maxOwner {
		err = fmt.Errorf("it has %d bytes, more than the %d of the format", len(data), maxOwner)
	}
	if err != nil {
		return SignedOwner{}, fmt.Errorf("write owner: %w", err)
	}
	if err := s.still(ctx); err != nil {
		return SignedOwner{}, fmt.Errorf("write owner: %w", err)
	}
	newTag, err := c.PutIf(ctx, key, data, tag)
	if err != nil {
		return SignedOwner{}, err
	}
	return s.openOwner(key, data, newTag)
}

// Owners calls fn for every ownership record, sorted by id. err is what GetOwner says of that
// record; an error of fn ends the list and is returned as it is. Files with other names are passed
// over.
func (s *Store) Owners(ctx context.Context, fn func(workloadID string, o SignedOwner,
	err error) error) error {
	var ids []string
	err := s.bucket.List(ctx, ownerFolder, func(i bucket.Info) error {
		id, ok := strings.CutSuffix(strings.TrimPrefix(i.Key, ownerFolder), ownerSuffix)
		if ok && layout.ValidSource(id) {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		o, err := s.GetOwner(ctx, id)
		if ctx.Err() != nil {
			return err
		}
		if err := fn(id, o, err); err != nil {
			return err
		}
	}
	return nil
}
