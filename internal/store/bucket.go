package store

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Bucket is the one seam to storage: bytes under keys, written once. A key is segments of
// [A-Za-z0-9._-], none beginning with a dot, joined by "/"; at most 255 bytes a segment and 1024 in
// all. No key is the folder of another.
//
// An implementation retries what is worth a retry itself: an error that comes out of a Bucket is
// final for this run. Errors are *BucketError, with the class that applies; a cancelled context
// comes back as an error that wraps ctx.Err(). All methods may be called concurrently.
//
// package buckettest holds the contract as tests.
type Bucket interface {
	// Put stores data under a new key, whole or not at all, and durable when it returns. A key that
	// is there is never changed: ErrExists (which also means that the other's bytes are durable).
	// Of several concurrent Puts of one key exactly one succeeds; but one of the very bytes that
	// are there may count as success, too, when its answer was lost. After any other error the key
	// may or may not be there, but never in part: put it again.
	Put(ctx context.Context, key string, data []byte) error
	// Get opens a key; ErrNotFound when it is not there. The context also ends reads from the
	// reader; the caller closes it.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Stat tells of one key; ErrNotFound when it is not there.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls fn for every key that begins with prefix, in byte order of the keys. Keys that
	// come while it runs may or may not be seen; what is not a key (a leftover temporary file, a
	// stranger's file with an odd name) is not. An error of fn ends the list and is returned as it
	// is.
	List(ctx context.Context, prefix string, fn func(Info) error) error
	// String names the place for messages; never with credentials.
	String() string
}

// Info is what a bucket tells of a key.
type Info struct {
	Key  string
	Size int64
	// Modified is when the key was written, by the clock of the storage; in whole seconds on S3
	// servers.
	Modified time.Time
}

// Remover is what a bucket can do besides when keys may be deleted from it. Only prune, snapshot
// delete and unpin do that (I3).
type Remover interface {
	// Delete removes a key, with all its versions in a bucket that keeps versions; it is durable
	// when it returns. A key that is not there is success, so it may run twice. ErrRetained when
	// the storage keeps the key, or a version of it, from being deleted, and then it can still be
	// read. After any other error the key may or may not be there.
	Delete(ctx context.Context, key string) error
}

// Versioned is what a bucket can do besides when it may keep the bytes that an overwrite or a
// deletion took from a key.
type Versioned interface {
	// Older calls fn with those of a key, newest first, until fn returns an error, which is
	// returned as it is. What a key has now is not among them. None is no error.
	Older(ctx context.Context, key string, fn func(io.Reader) error) error
}

// Retainer is what a bucket can do besides when its storage can be asked to keep keys from being
// deleted for a time, as Object Lock does. Every Put asks for it.
type Retainer interface {
	// Retention is for how long. envelope is for what is written once and never used again, and
	// longer than what an operator asked for by what a snapshot may take from here to its envelope;
	// content is for what later snapshots use again, and longer than that, so that it has to be
	// retained anew now and then only. 0 means that the storage is asked for nothing.
	Retention() (envelope, content time.Duration)
	// Retain makes the storage keep a key at least for Retention's envelope from now on, and
	// returns until when. It may run twice; a key that is kept for long enough is left alone.
	// ErrNotFound when it is not there, *CorruptError when the storage knows that its bytes do not
	// fit its name.
	Retain(ctx context.Context, key string) (until time.Time, err error)
}

const (
	maxKey     = 1024
	maxSegment = 255
)

// ValidateKey returns an error wrapping ErrInvalidKey unless key follows the rules of Bucket.
// Implementations call it first: a key may come from a file that a stranger wrote.
func ValidateKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("%w: longer than %d bytes", ErrInvalidKey, maxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if !validSegment(segment) {
			return fmt.Errorf("%w: %.300q", ErrInvalidKey, key)
		}
	}
	return nil
}

func validSegment(s string) bool {
	if s == "" || len(s) > maxSegment || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
