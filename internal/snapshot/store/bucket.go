package store

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Bucket is the one seam to storage: bytes under keys, written once. A key is segments of [A-Za-z0-9._-], none beginning with a dot, joined by "/";
// at most 255 bytes a segment and 1024 in all. No key is the folder of another.
//
// An implementation retries what is worth a retry itself: an error that comes out of a Bucket is final for this run. Errors are *BucketError, with
// the class that applies; a cancelled context comes back as an error that wraps ctx.Err(). All methods may be called concurrently.
//
// package buckettest holds the contract as tests.
type Bucket interface {
	// Put stores data under a new key, whole or not at all, and durable when it returns. A key that is there is never changed: ErrExists (which
	// also means that the other's bytes are durable). Of several concurrent Puts of one key exactly one succeeds. After any other error the key
	// may or may not be there, but never in part: put it again.
	Put(ctx context.Context, key string, data []byte) error
	// Get opens a key; ErrNotFound when it is not there. The context also ends reads from the reader; the caller closes it.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Stat tells of one key; ErrNotFound when it is not there.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls fn for every key that begins with prefix, in byte order of the keys. Keys that come while it runs may or may not be seen; what is
	// not a key (a leftover temporary file, a stranger's file with an odd name) is not. An error of fn ends the list and is returned as it is.
	List(ctx context.Context, prefix string, fn func(Info) error) error
	// String names the place for messages; never with credentials.
	String() string
}

// Info is what a bucket tells of a key.
type Info struct {
	Key  string
	Size int64
}

const (
	maxKey     = 1024
	maxSegment = 255
)

// ValidateKey returns an error wrapping ErrInvalidKey unless key follows the rules of Bucket. Implementations call it first: a key may come from a
// file that a stranger wrote.
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
