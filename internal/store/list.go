package store

import (
	"context"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// Class is what a key of a store is for. The classes of packs, shards and trees are their kinds.
type Class string

// The classes of keys.
const (
	ClassPack         = Class(KindPack)
	ClassShard        = Class(KindShard)
	ClassTree         = Class(KindTree)
	ClassEnvelope     = Class("envelope")
	ClassPin          = Class("pin")
	ClassVerification = Class("verification")
	ClassOwner        = Class("owner")
	ClassOperation    = Class("operation")
	ClassPrune        = Class("prune")
	ClassCopying      = Class("copying")
	ClassOther        = Class("other")
)

// recordFolders are the folders of what is stored besides snapshots. bySource folders have one
// folder for each source.
var recordFolders = []struct {
	folder   string
	class    Class
	bySource bool
}{
	{record.PinFolder, ClassPin, true},
	{record.VerificationFolder, ClassVerification, true},
	{record.OwnerFolder, ClassOwner, false},
	{layout.OperationFolder, ClassOperation, false},
	{record.PruneFolder, ClassPrune, false},
	{record.CopyingFolder, ClassCopying, false},
	{record.CopiedFolder, ClassCopying, true},
}

// StoredKey is any key in the bucket of a store.
type StoredKey struct {
	Key   string
	Class Class
	// Source is the UID of the source that the key belongs to by its name; empty for content, which
	// several sources may share, and for records of no source.
	Source string
	// Size and Modified are what the storage says. Modified may be zero.
	Size     int64
	Modified time.Time
}

// List calls fn for every key in the bucket, in one listing, and reads none of them. An error of fn
// ends the list and is returned as it is.
func (s *Store) List(ctx context.Context, fn func(StoredKey) error) error {
	return s.bucket.List(ctx, "", func(i bucket.Info) error {
		class, source := classOf(i.Key)
		return fn(StoredKey{Key: i.Key, Class: class, Source: source, Size: i.Size,
			Modified: i.Modified})
	})
}

// classOf returns the class of a key, and the source that its name has.
func classOf(key string) (Class, string) {
	if k, err := ParseKey(key); err == nil {
		return Class(k.Kind()), ""
	}
	if k, err := ParseEnvelopeKey(key); err == nil {
		return ClassEnvelope, k.Source
	}
	for _, f := range recordFolders {
		rest, ok := strings.CutPrefix(key, f.folder)
		if !ok {
			continue
		}
		source, _, _ := strings.Cut(rest, "/")
		if !f.bySource {
			source = ""
		}
		return f.class, source
	}
	return ClassOther, ""
}
