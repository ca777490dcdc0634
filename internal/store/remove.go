package store

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// This file is all that deletes from a store (I3), and it deletes nothing by itself: package
// snapshot decides what goes. Each is gone or whole afterwards, and a key that is not there is
// success, so all of it may run twice. ErrRetained when the storage does not let it be deleted yet.

func (s *Store) remove(ctx context.Context, key string) error {
	if err := s.refuseReadOnly(); err != nil {
		return err
	}
	r, ok := s.bucket.(bucket.Remover)
	if !ok {
		return &UsageError{Text: "delete from store " + s.String() + ": nothing can be deleted there"}
	}
	return r.Delete(ctx, key)
}

// requireModTime refuses a key without a time of writing: young keys must not be removed, and
// without a time any key may be young.
func requireModTime(i bucket.Info) error {
	if i.Modified.Unix() <= 0 {
		return &BucketError{Op: "list", Key: i.Key, Err: errors.New("the storage does not say when " +
			"it was written, so that nothing can be removed")}
	}
	return nil
}

// MayRemove checks the conditions for removing before anything is removed. A *UsageError says what
// is missing.
func (s *Store) MayRemove() error {
	if err := s.refuseReadOnly(); err != nil {
		return err
	}
	if _, ok := s.bucket.(bucket.Remover); !ok {
		return &UsageError{Text: "delete from store " + s.String() + ": nothing can be deleted there"}
	}
	return s.mayRecord()
}

// RemoveSnapshot removes the envelope of a snapshot, with which the snapshot is gone. What it names
// stays. The caller has made sure that no run may use its keys again.
func (s *Store) RemoveSnapshot(ctx context.Context, k EnvelopeKey) error {
	return s.remove(ctx, k.String())
}

// RemoveContent removes a pack, a shard or a tree. The caller has made sure that no envelope names
// it, and none will.
func (s *Store) RemoveContent(ctx context.Context, k Key) error { return s.remove(ctx, string(k)) }

// RemovalBatch returns how many keys RemoveContents should get at once. It may become 1 when the
// storage turns out to delete only one key with a request.
func (s *Store) RemovalBatch() int { return bucket.BatchSizeOf(s.bucket) }

// RemoveContents removes packs, shards and trees, each as RemoveContent does, and with few requests
// where the storage allows that. It returns an error for every key that is not removed.
// ErrUnbatched, which a call with one key never returns, says that RemoveContent has to be called
// for a key.
func (s *Store) RemoveContents(ctx context.Context, keys []Key) map[Key]error {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = string(k)
	}
	failed := map[Key]error{}
	for name, err := range s.removeBatch(ctx, names) {
		failed[Key(name)] = err
	}
	return failed
}

func (s *Store) removeBatch(ctx context.Context, keys []string) map[string]error {
	b, ok := s.bucket.(bucket.BatchRemover)
	if ok && len(keys) > 1 && s.refuseReadOnly() == nil {
		return b.DeleteBatch(ctx, keys)
	}
	failed := map[string]error{}
	for _, key := range keys {
		if err := s.remove(ctx, key); err != nil {
			failed[key] = err
		}
	}
	return failed
}

// removeAll removes keys in batches, and calls done for each key, with nil when it is gone. It ends
// with the first error of done.
func (s *Store) removeAll(ctx context.Context, keys []string, done func(error) error) error {
	for len(keys) > 0 {
		chunk := keys[:min(s.RemovalBatch(), len(keys))]
		keys = keys[len(chunk):]
		failed := s.removeBatch(ctx, chunk)
		for _, key := range chunk {
			err := failed[key]
			if errors.Is(err, ErrUnbatched) {
				err = s.remove(ctx, key)
			}
			if err := done(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// StoredContent is a pack, a shard or a tree in the bucket.
type StoredContent struct {
	Key      Key
	Size     int64
	Modified time.Time
}

// Content calls fn for every tree, shard and pack that is stored, whether a snapshot names it or
// not. An error of fn ends the list and is returned as it is.
func (s *Store) Content(ctx context.Context, fn func(StoredContent) error) error {
	for _, folder := range []string{"trees/", "shards/", "packs/"} {
		err := s.bucket.List(ctx, folder, func(i bucket.Info) error {
			if key, err := ParseKey(i.Key); err == nil {
				if err := requireModTime(i); err != nil {
					return err
				}
				return fn(StoredContent{Key: key, Size: i.Size, Modified: i.Modified})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveLeftovers removes the pins and verifications that are older than a time and whose snapshot
// does not exist, according to exists. Keys of another form stay. It returns how many were removed;
// those that the storage retains are passed over.
func (s *Store) RemoveLeftovers(ctx context.Context, before time.Time,
	exists func(source, snapshot string) bool) (int, error) {
	var keys []string
	for _, folder := range []string{record.PinFolder, record.VerificationFolder} {
		err := s.bucket.List(ctx, folder, func(i bucket.Info) error {
			source, rest, _ := strings.Cut(strings.TrimPrefix(i.Key, folder), "/")
			name, _, _ := strings.Cut(rest, "/")
			name = strings.TrimSuffix(name, path.Ext(layout.EnvelopeSuffix))
			_, err := ParseEnvelopeKey(layout.EnvelopeFolder + source + "/" + name + layout.EnvelopeSuffix)
			if err == nil && i.Modified.Before(before) && !exists(source, name) {
				keys = append(keys, i.Key)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	gone := 0
	err := s.removeAll(ctx, keys, func(err error) error {
		if errors.Is(err, ErrRetained) {
			return nil
		}
		if err == nil {
			gone++
		}
		return err
	})
	return gone, err
}

// Sweep removes what writes that were killed before a time left in the bucket, and calls removed
// with the size of each.
func (s *Store) Sweep(ctx context.Context, before time.Time, removed func(size int64)) error {
	if err := s.refuseReadOnly(); err != nil {
		return err
	}
	if b, ok := s.bucket.(bucket.Sweeper); ok {
		return b.Sweep(ctx, before, removed)
	}
	return nil
}
