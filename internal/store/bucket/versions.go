package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Version is what one write or deletion left of a key in a bucket with versions.
type Version struct {
	ID       string // as the storage names it
	Size     int64
	Modified time.Time
	Current  bool // it is what Get reads, or why Get does not find the key
	Deleted  bool // a delete marker: it has no bytes
}

// Versioned is the ability to read bytes that an overwrite or a deletion took from a key.
type Versioned interface {
	// Versions returns the versions of a key, newest first, with delete markers and the current one.
	// A key that never existed has none, and neither has any key of a bucket without versions.
	Versions(ctx context.Context, key string) ([]Version, error)
	// GetVersion opens one version of a key, as Get does; ErrNotFound when it does not exist.
	GetVersion(ctx context.Context, key, id string) (io.ReadCloser, error)
	// VersionSHA256 returns the hash in hex that the storage verified when it received a version,
	// without reading its bytes; empty when there is none on record.
	VersionSHA256(ctx context.Context, key, id string) (string, error)
}

// Repairer is the ability to bring an older version of a key back. Only store repair uses it.
type Repairer interface {
	Versioned
	// HasVersions reports whether the bucket has versions, or may have.
	HasVersions(ctx context.Context) (bool, error)
	// ListVersions calls fn for every key that begins with prefix and has a version, in byte order,
	// with what Versions returns of it. An error of fn ends the list and is returned unchanged.
	ListVersions(ctx context.Context, prefix string, fn func(key string,
		versions []Version) error) error
	// RemoveMarker removes one delete marker of a key. ErrDenied when these credentials may not.
	RemoveMarker(ctx context.Context, key, id string) error
	// Replace stores data as the current version of a key, whatever is there, and retains it as Put
	// does.
	Replace(ctx context.Context, key string, data []byte) error
}

// Retainer is the ability to protect keys from deletion for a time, as Object Lock does. Every Put
// asks for it.
type Retainer interface {
	// Retention returns for how long keys are retained; 0 means not at all. envelope is for what is
	// written once and never reused: what the operator asked for, and the time that a snapshot may
	// take from a Retain to its envelope. content is for what later snapshots reuse. It is longer,
	// so that content is rarely retained again.
	Retention() (envelope, content time.Duration)
	// Retain protects the version of a key whose bytes have a SHA-256, in hex, at least for
	// Retention's envelope from now on, and returns until when. It never retains the bytes of
	// somebody who wrote over the key. It may run twice; a version that is retained for long enough
	// is not changed. ErrNotFound when the key does not exist. *CorruptError when the current bytes
	// are others: then an older version is retained, or until is zero because there is none.
	Retain(ctx context.Context, key, sum string) (until time.Time, err error)
	// RetainedUntil returns until when the storage retains the version of a key whose bytes have a
	// SHA-256, in hex. It is zero when that version is not retained, or when these credentials may
	// not see it. ErrNotFound when there is no such version.
	RetainedUntil(ctx context.Context, key, sum string) (time.Time, error)
}

// mostVersions bounds what FindVersion reads where the storage has no hashes on record, in versions
// of the largest size. Somebody who may only write can put any number of versions on a key.
const mostVersions = 8

// FindVersion returns the oldest version of a key whose bytes have a SHA-256, in hex. A key that is
// named after its content is written once, so that the oldest version is the one that was written
// first. It reads no version of more than most bytes, nor one of which the storage knows that it
// has another hash. ErrNotFound when there is none, ErrUnreachable when there may be one.
func FindVersion(ctx context.Context, b Versioned, key, sum string, most int64) (Version, []byte,
	error) {
	versions, err := b.Versions(ctx, key)
	if err != nil {
		return Version{}, nil, err
	}
	left := mostVersions * most
	for _, v := range slices.Backward(versions) {
		if v.Deleted || v.Size > min(most, left) {
			continue
		}
		known, err := b.VersionSHA256(ctx, key, v.ID)
		if err == nil && (known == "" || known == sum) {
			var data []byte
			left -= v.Size
			data, err = ReadVersion(ctx, b, key, v.ID, most)
			if err == nil && hashOf(data) == sum {
				return v, data, nil
			}
		}
		if ctx.Err() != nil || errors.Is(err, ErrUnreachable) {
			return Version{}, nil, err
		}
	}
	return Version{}, nil, &Error{Op: "get", Key: key, Class: ErrNotFound,
		Err: errors.New("no version of it has the bytes that belong there")}
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ReadVersion reads a whole version of a key. One of more than most bytes is a *CorruptError.
func ReadVersion(ctx context.Context, b Versioned, key, id string, most int64) ([]byte, error) {
	r, err := b.GetVersion(ctx, key, id)
	if err != nil {
		return nil, err
	}
	return readWhole(r, key, most)
}

// HashVersion reads a whole version of a key and returns the SHA-256 of its bytes, in hex, without
// holding them. One of more than most bytes is a *CorruptError.
func HashVersion(ctx context.Context, b Versioned, key, id string, most int64) (sum string,
	err error) {
	r, err := b.GetVersion(ctx, key, id)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	h := sha256.New()
	size, err := io.Copy(h, io.LimitReader(r, most+1))
	if err == nil && size > most {
		err = &CorruptError{Key: key, Reason: fmt.Sprintf("it is larger than %d bytes", most)}
	}
	return hex.EncodeToString(h.Sum(nil)), err
}
