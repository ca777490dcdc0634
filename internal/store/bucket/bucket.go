// Package bucket is the contract of a store's storage: the interface Bucket, its further abilities
// and its errors. The implementations are its subfolders directory and s3; location opens either by
// its URL. buckettest is the contract as tests, and faultbucket puts faults before a bucket.
package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Bucket is the one seam to storage: bytes under keys, written once. A key is segments of
// [A-Za-z0-9._-], none beginning with a dot, joined by "/"; at most 255 bytes a segment and 1024 in
// all. No key is the folder of another.
//
// An implementation retries by itself whatever may succeed on a retry: an error that comes out of a
// Bucket is final for this run. Errors are *Error, with the class that applies; a cancelled context
// comes back as an error that wraps ctx.Err(). All methods may be called concurrently.
//
// Package buckettest holds the contract as tests. Further abilities are Conditional, Remover,
// BatchRemover, Versioned, Repairer and Retainer, found by type assertion.
type Bucket interface {
	// Put stores data under a new key, whole or not at all, and durable when it returns. An
	// existing key is never changed: ErrExists, which also means that the existing bytes are
	// durable. Of several concurrent Puts of one key exactly one succeeds; a Put of the very bytes
	// that exist may also succeed when its answer was lost. After any other error the key exists or
	// not, but never partly: put it again.
	Put(ctx context.Context, key string, data []byte) error
	// Get opens a key; ErrNotFound when it does not exist. The context also ends reads from the
	// reader; the caller closes it.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Stat returns the size and time of one key; ErrNotFound when it does not exist.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls fn for every key that begins with prefix, in byte order of the keys. Keys that are
	// written during the list may or may not be in it. Names that are not keys are not in it: a
	// leftover temporary file, or a file that some other program put there. An error of fn ends the
	// list and is returned unchanged.
	List(ctx context.Context, prefix string, fn func(Info) error) error
	// String names the place for messages; never with credentials.
	String() string
}

// Factory returns the bucket that a URL names. It checks the URL and sends nothing. *UsageError.
type Factory func(url string) (Bucket, error)

// Info describes a key.
type Info struct {
	Key  string
	Size int64
	// Modified is when the key was written, by the clock of the storage; in whole seconds on S3
	// servers.
	Modified time.Time
	// Tag is another one whenever the bytes are others, and tells nothing else; empty where the
	// storage gives none.
	Tag string
}

// Remover is the ability to delete keys. Only prune, snapshot delete and unpin use it (I3).
type Remover interface {
	// Delete removes a key, with all its versions in a versioned bucket; it is durable
	// when it returns. A key that does not exist is success, so Delete may run twice. ErrRetained
	// means that the storage refuses to delete the key, or a version of it, and the key can still
	// be read. After any other error the key may or may not exist.
	Delete(ctx context.Context, key string) error
}

// The longest key, and the longest segment of a key, in bytes.
const (
	MaxKey     = 1024
	maxSegment = 255
)

// ValidateKey returns an error wrapping ErrInvalidKey unless key follows the rules of Bucket.
// Implementations call it first: a key may come from a document that somebody else wrote.
func ValidateKey(key string) error {
	if len(key) > MaxKey {
		return fmt.Errorf("%w: longer than %d bytes", ErrInvalidKey, MaxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if !ValidSegment(segment) {
			return fmt.Errorf("%w: %.300q", ErrInvalidKey, key)
		}
	}
	return nil
}

// ValidSegment reports whether s can be a segment of a key.
func ValidSegment(s string) bool {
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

// ReadAll reads a whole key. A key of more than most bytes is a *CorruptError.
func ReadAll(ctx context.Context, b Bucket, key string, most int64) ([]byte, error) {
	r, err := b.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return readWhole(r, key, most)
}

// readWhole reads what Get opened, and closes it.
func readWhole(r io.ReadCloser, key string, most int64) (data []byte, err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, io.LimitReader(r, most+1)); err != nil {
		return nil, err
	}
	if int64(buf.Len()) > most {
		return nil, &CorruptError{Key: key, Reason: fmt.Sprintf("it is larger than %d bytes", most)}
	}
	return buf.Bytes(), nil
}
