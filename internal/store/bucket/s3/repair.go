package s3

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// HasVersions implements Repairer.
func (b *Bucket) HasVersions(ctx context.Context) (bool, error) { return b.isVersioned(ctx) }

// versionOf converts a version. Its time has milliseconds where the server gives them.
func versionOf(v minio.ObjectInfo) bucket.Version {
	return bucket.Version{ID: v.VersionID, Size: v.Size, Modified: v.LastModified,
		Current: v.IsLatest, Deleted: v.IsDeleteMarker}
}

// Versions implements Versioned.
func (b *Bucket) Versions(ctx context.Context, key string) ([]bucket.Version, error) {
	if err := b.begin(ctx, "list", key); err != nil {
		return nil, err
	}
	if versioned, err := b.isVersioned(ctx); err != nil || !versioned {
		return nil, err
	}
	return b.listVersions(ctx, key)
}

// ListVersions implements Repairer. It lists all before it calls fn: a page of versions cannot be
// asked for again by itself, and some servers list the delete markers of a page after its other
// versions. What it holds of a version meanwhile is no more than fn gets.
func (b *Bucket) ListVersions(ctx context.Context, prefix string,
	fn func(string, []bucket.Version) error) error {
	if versioned, err := b.isVersioned(ctx); err != nil || !versioned || !canBePrefix(prefix) {
		return err
	}
	byKey := map[string][]bucket.Version{}
	err := b.eachVersion(ctx, prefix, func() { clear(byKey) }, func(v minio.ObjectInfo) {
		key := strings.TrimPrefix(v.Key, b.key(""))
		if bucket.ValidateKey(key) == nil && key != conditionalKey {
			byKey[key] = append(byKey[key], versionOf(v))
		}
	})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		versions := byKey[key]
		delete(byKey, key)
		sortVersions(versions)
		if err := fn(key, versions); err != nil {
			return err
		}
	}
	return nil
}

// GetVersion implements Versioned.
func (b *Bucket) GetVersion(ctx context.Context, key, id string) (io.ReadCloser, error) {
	if err := b.begin(ctx, "get", key); err != nil {
		return nil, err
	}
	r := &reader{ctx: ctx, bucket: b, key: key, version: id}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// VersionSHA256 implements Versioned.
func (b *Bucket) VersionSHA256(ctx context.Context, key, id string) (string, error) {
	if err := b.begin(ctx, "stat", key); err != nil {
		return "", err
	}
	info, _, err := b.retained(ctx, "stat", key, id)
	return sha256Of(info), err
}

// sha256Of returns the SHA-256 in hex that the server verified of an upload; empty when the upload
// came without one, or in parts.
func sha256Of(info minio.ObjectInfo) string {
	raw, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256)
	if err != nil || len(raw) != 32 {
		return ""
	}
	return hex.EncodeToString(raw)
}

// RemoveMarker implements Repairer.
func (b *Bucket) RemoveMarker(ctx context.Context, key, id string) error {
	if err := b.begin(ctx, "delete", key); err != nil {
		return err
	}
	if id == "" { // without an id the request would delete the key
		return &bucket.Error{Op: "delete", Key: key,
			Err: errors.New("the storage server gives the delete marker no version id")}
	}
	_, err := b.deleteOne(ctx, key, id)
	return err
}

// Replace implements Repairer.
func (b *Bucket) Replace(ctx context.Context, key string, data []byte) error {
	if err := b.begin(ctx, "put", key); err != nil {
		return err
	}
	if err := b.checkLock(ctx); err != nil {
		return err
	}
	_, err := b.write(ctx, key, data, condition{when: unconditional, retain: b.retainNew(key)})
	return b.lockMissing(err)
}
