package faultbucket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Read returns how many bytes of versions were asked for so far.
func (v *Versioned) Read() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read
}

// versions needs the lock.
func (v *Versioned) versions(key string) []bucket.Version {
	var list []bucket.Version
	for i, is := range slices.Backward(v.keys[key]) {
		list = append(list, bucket.Version{ID: is.id, Size: int64(len(is.data)), Modified: is.at,
			Current: i == len(v.keys[key])-1, Deleted: is.deleted})
	}
	return list
}

// Versions implements bucket.Versioned.
func (v *Versioned) Versions(ctx context.Context, key string) ([]bucket.Version, error) {
	if err := v.begin(ctx, "list", key); err != nil {
		return nil, err
	}
	defer v.mu.Unlock()
	return v.versions(key), nil
}

// find returns a version and its place. It needs the lock.
func (v *Versioned) find(key, id string) (i int, is version, err error) {
	i = slices.IndexFunc(v.keys[key], func(is version) bool { return is.id == id })
	if i < 0 || v.keys[key][i].deleted {
		return i, is, &bucket.Error{Op: "get", Key: key, Class: bucket.ErrNotFound}
	}
	return i, v.keys[key][i], nil
}

// GetVersion implements bucket.Versioned.
func (v *Versioned) GetVersion(ctx context.Context, key, id string) (io.ReadCloser, error) {
	if err := v.begin(ctx, "get", key); err != nil {
		return nil, err
	}
	defer v.mu.Unlock()
	_, is, err := v.find(key, id)
	if err != nil {
		return nil, err
	}
	v.read += int64(len(is.data))
	return reader{ctx, bytes.NewReader(is.data)}, nil
}

// VersionSHA256 implements bucket.Versioned.
func (v *Versioned) VersionSHA256(ctx context.Context, key, id string) (string, error) {
	if err := v.begin(ctx, "stat", key); err != nil {
		return "", err
	}
	defer v.mu.Unlock()
	_, is, err := v.find(key, id)
	if err != nil || v.NoChecksums {
		return "", err
	}
	return tagOf(is.data), nil
}

// HasVersions implements bucket.Repairer.
func (v *Versioned) HasVersions(context.Context) (bool, error) { return true, nil }

// ListVersions implements bucket.Repairer.
func (v *Versioned) ListVersions(ctx context.Context, prefix string,
	fn func(string, []bucket.Version) error) error {
	v.mu.Lock()
	keys := slices.Sorted(maps.Keys(v.keys))
	v.mu.Unlock()
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		list, err := v.Versions(ctx, key)
		if err == nil && len(list) > 0 {
			err = fn(key, list)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// RemoveMarker implements bucket.Repairer.
func (v *Versioned) RemoveMarker(ctx context.Context, key, id string) error {
	if err := v.begin(ctx, "delete", key); err != nil {
		return err
	}
	defer v.mu.Unlock()
	if v.NoUndelete {
		return &bucket.Error{Op: "delete", Key: key, Class: bucket.ErrDenied}
	}
	v.keys[key] = slices.DeleteFunc(slices.Clone(v.keys[key]), func(is version) bool {
		return is.deleted && is.id == id
	})
	return nil
}

// Replace implements bucket.Repairer.
func (v *Versioned) Replace(ctx context.Context, key string, data []byte) error {
	if err := v.begin(ctx, "put", key); err != nil {
		return err
	}
	defer v.mu.Unlock()
	v.add(key, version{data: bytes.Clone(data), until: v.retainNew()})
	return nil
}

// retainNew needs the lock.
func (v *Versioned) retainNew() time.Time {
	if v.RetainFor == 0 {
		return time.Time{}
	}
	return v.now().Add(v.RetainFor)
}

// Retention implements bucket.Retainer.
func (v *Versioned) Retention() (envelope, content time.Duration) {
	return v.RetainFor, v.RetainFor
}

// Retain implements bucket.Retainer.
func (v *Versioned) Retain(ctx context.Context, key, sum string) (time.Time, error) {
	if _, err := v.Stat(ctx, key); err != nil {
		return time.Time{}, err
	}
	is, _, err := bucket.FindVersion(ctx, v, key, sum, 1<<30)
	corrupt := &bucket.CorruptError{Key: key, Reason: "its bytes are not those to be retained"}
	if errors.Is(err, bucket.ErrNotFound) {
		return time.Time{}, corrupt
	}
	if err != nil {
		return time.Time{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	i, _, err := v.find(key, is.ID)
	if err != nil {
		return time.Time{}, err
	}
	if top, err := v.top("retain", key); err != nil || tagOf(top.data) != sum {
		v.keys[key][i].until = v.retainNew()
		return v.keys[key][i].until, corrupt
	}
	v.keys[key][len(v.keys[key])-1].until = v.retainNew()
	return v.retainNew(), nil
}

// RetainedUntil implements bucket.Retainer.
func (v *Versioned) RetainedUntil(ctx context.Context, key, sum string) (time.Time, error) {
	is, _, err := bucket.FindVersion(ctx, v, key, sum, 1<<30)
	if err != nil {
		return time.Time{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, found, err := v.find(key, is.ID)
	return found.until, err
}

// UntilOf returns until when a version is retained; zero when it is not.
func (v *Versioned) UntilOf(key, id string) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, is, err := v.find(key, id)
	if err != nil {
		return time.Time{}
	}
	return is.until
}

// Unlock takes the retention from all versions of a key.
func (v *Versioned) Unlock(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.keys[key] {
		v.keys[key][i].until = time.Time{}
	}
}

// Forget removes all versions of a key, whatever retains them.
func (v *Versioned) Forget(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.keys, key)
}
