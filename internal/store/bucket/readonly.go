package bucket

import (
	"context"
	"errors"
	"io"
	"time"
)

// ReadOnly returns a bucket that reads from b and writes nothing. It is no Conditional and no
// Remover, and every call that would write fails.
func ReadOnly(b Bucket) Bucket { return readOnly{b} }

type readOnly struct{ Bucket }

var (
	_ Repairer = readOnly{}
	_ Retainer = readOnly{}
)

func errReadOnly(op, key string) error {
	return &Error{Op: op, Key: key, Class: ErrDenied, Err: errors.New("the location is read-only")}
}

func (readOnly) Put(_ context.Context, key string, _ []byte) error {
	return errReadOnly("put", key)
}

// Versions implements Versioned; a bucket that is no Versioned has none.
func (r readOnly) Versions(ctx context.Context, key string) ([]Version, error) {
	v, ok := r.Bucket.(Versioned)
	if !ok {
		return nil, nil
	}
	return v.Versions(ctx, key)
}

// GetVersion implements Versioned.
func (r readOnly) GetVersion(ctx context.Context, key, id string) (io.ReadCloser, error) {
	v, ok := r.Bucket.(Versioned)
	if !ok {
		return nil, &Error{Op: "get", Key: key, Class: ErrNotFound}
	}
	return v.GetVersion(ctx, key, id)
}

// VersionSHA256 implements Versioned.
func (r readOnly) VersionSHA256(ctx context.Context, key, id string) (string, error) {
	v, ok := r.Bucket.(Versioned)
	if !ok {
		return "", nil
	}
	return v.VersionSHA256(ctx, key, id)
}

// HasVersions implements Repairer.
func (r readOnly) HasVersions(ctx context.Context) (bool, error) {
	v, ok := r.Bucket.(Repairer)
	if !ok {
		return false, nil
	}
	return v.HasVersions(ctx)
}

// ListVersions implements Repairer.
func (r readOnly) ListVersions(ctx context.Context, prefix string, fn func(key string,
	versions []Version) error) error {
	v, ok := r.Bucket.(Repairer)
	if !ok {
		return nil
	}
	return v.ListVersions(ctx, prefix, fn)
}

// RemoveMarker implements Repairer.
func (readOnly) RemoveMarker(_ context.Context, key, _ string) error {
	return errReadOnly("undelete", key)
}

// Replace implements Repairer.
func (readOnly) Replace(_ context.Context, key string, _ []byte) error {
	return errReadOnly("put", key)
}

// Retention implements Retainer. Nothing is written, so nothing is asked of the storage.
func (readOnly) Retention() (envelope, content time.Duration) { return 0, 0 }

// Retain implements Retainer.
func (readOnly) Retain(_ context.Context, key, _ string) (time.Time, error) {
	return time.Time{}, errReadOnly("retain", key)
}

// RetainedUntil implements Retainer.
func (r readOnly) RetainedUntil(ctx context.Context, key, sum string) (time.Time, error) {
	v, ok := r.Bucket.(Retainer)
	if !ok {
		return time.Time{}, nil
	}
	return v.RetainedUntil(ctx, key, sum)
}
