package store

import (
	"bytes"
	"context"
	"sync"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/task"
)

// UnusableRecord is a document that is there and does not count, or counts although nobody who is
// trusted wrote it, as a pin does.
type UnusableRecord struct {
	Key   string
	Class Class
	// Err says why: it is damaged, the storage does not give it, or no key signed it that is trusted
	// for what it says.
	Err error
}

// UnusableRecords reads all pins, results of verifies, ownership records and heads of records of
// operations, and returns those that no writer of this store can have left. An attacker who can
// write to the bucket can write such documents, and their readers ignore them silently. Without
// trusted keys only what is damaged is known to be such. Records of prunes are in Pruned.Unusable.
func (s *Store) UnusableRecords(ctx context.Context) ([]UnusableRecord, error) {
	var unusable []UnusableRecord
	for _, f := range recordFolders {
		if f.class == ClassPrune || f.class == ClassCopying {
			continue
		}
		var keys []string
		if err := s.bucket.List(ctx, f.folder, func(i bucket.Info) error {
			keys = append(keys, i.Key)
			return nil
		}); err != nil {
			return nil, err
		}
		reasons := make([]error, len(keys))
		var mu sync.Mutex
		g, gctx := task.WithContext(ctx)
		g.SetLimit(recordReads)
		for i, key := range keys {
			g.Go(func() error {
				reason, err := s.checkRecord(gctx, key)
				mu.Lock()
				defer mu.Unlock()
				reasons[i] = reason
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		for i, key := range keys {
			if reasons[i] != nil {
				unusable = append(unusable, UnusableRecord{Key: key, Class: f.class, Err: reasons[i]})
			}
		}
	}
	return unusable, nil
}

// checkRecord returns why a record does not count. err is about the store.
func (s *Store) checkRecord(ctx context.Context, key string) (reason, err error) {
	most := documentSizes[layoutFolder(key)]
	if layoutFolder(key) == layout.OperationFolder {
		most = s.limits.maxStored + maxHead
	}
	data, err := bucket.ReadAll(ctx, s.bucket, key, most)
	if err == nil {
		var signature Signature
		signature, reason = s.openRecord(key, data)
		if reason == nil && s.keys.CanTrust() && !s.accepted(signature.Trust) {
			reason = signature.Untrusted(key)
		}
		return reason, nil
	}
	switch {
	case IsMissing(err): // removed since it was listed
		return nil, nil
	case OfStore(ctx, err) != nil:
		return nil, err
	}
	return err, nil
}

// openRecord reads the signature of a record in one of the folders of documents, and checks that it
// is what its key says.
func (s *Store) openRecord(key string, data []byte) (Signature, error) {
	switch layoutFolder(key) {
	case record.PinFolder:
		var p Pin
		return s.snapshotSigner().Open(key, data, &p)
	case record.VerificationFolder:
		v, err := s.openVerification(key, data)
		return v.Signature, err
	case record.OwnerFolder:
		o, err := s.openOwner(key, data, "")
		return o.Signature, err
	case record.PruneFolder:
		var p record.Prune
		return s.signer().Open(key, data, &p)
	}
	var o record.Operation
	line, sealed, _ := bytes.Cut(data, []byte("\n"))
	signature, err := s.signer().Open(key, append(bytes.Clone(line), '\n'), &o)
	if err == nil && o.SHA256 != layout.SHA256Hex(sealed) {
		err = &CorruptError{Key: key, Reason: "its text is not what was signed"}
	}
	return signature, err
}
