package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// isVersioned reports whether the bucket has versions, or may have. The server is asked once; a
// later deletion notices versions that were turned on since.
func (b *Bucket) isVersioned(ctx context.Context) (bool, error) {
	if known := b.versions.Load(); known != nil {
		return *known, nil
	}
	var config minio.BucketVersioningConfiguration
	err := b.do(ctx, "get", "", 0, func(ctx context.Context) (err error) {
		config, err = b.client.GetBucketVersioning(ctx, b.options.Bucket)
		return err
	})
	versioned := config.Status != "" // "Suspended" leaves existing versions
	if refused(err) {
		versioned, err = true, nil // the list of versions shows it
	}
	if err != nil {
		return false, err
	}
	b.versions.Store(&versioned)
	return versioned, nil
}

// refused reports whether the server answered that it does not allow, or does not know, the
// request.
func refused(err error) bool {
	e, ok := errors.AsType[*bucket.Error](err)
	if !ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return e.Class == nil || e.Class == bucket.ErrDenied
}

// listVersions returns the versions and delete markers of one key, the newest first.
func (b *Bucket) listVersions(ctx context.Context, key string) ([]bucket.Version, error) {
	var found []bucket.Version
	err := b.eachVersion(ctx, key, func() { found = nil }, func(v minio.ObjectInfo) {
		if v.Key == b.key(key) { // and not one that only begins so
			found = append(found, versionOf(v))
		}
	})
	sortVersions(found)
	return found, err
}

// eachVersion calls fn for each version of the keys with a prefix, and reset before each try.
func (b *Bucket) eachVersion(ctx context.Context, prefix string, reset func(),
	fn func(minio.ObjectInfo)) error {
	o := minio.ListObjectsOptions{Prefix: b.key(prefix), Recursive: true, WithVersions: true}
	err := b.do(ctx, "list", prefix, 0, func(ctx context.Context) error {
		reset()
		for v := range b.client.ListObjectsIter(ctx, b.options.Bucket, o) {
			if v.Err != nil {
				return v.Err
			}
			fn(v)
		}
		return ctx.Err() // the iterator just stops
	})
	if e, ok := errors.AsType[*bucket.Error](err); ok && e.Class == bucket.ErrDenied {
		e.Tip = "these credentials may not see the versions of a key: grant GetBucketVersioning and " +
			"ListBucketVersions"
	}
	return err
}

// sortVersions puts the versions of one key in order, newest first: some servers give delete
// markers last. Afterwards their times are in whole seconds.
func sortVersions(found []bucket.Version) {
	slices.SortStableFunc(found, func(a, b bucket.Version) int {
		switch {
		case a.Current == b.Current:
			return b.Modified.Compare(a.Modified)
		case a.Current:
			return -1
		}
		return 1
	})
	for i := range found {
		found[i].Modified = wholeSeconds(found[i].Modified)
	}
}

// deleted reports whether a key that the server says exists is in fact deleted: versitygw counts a
// delete marker as existing.
func (b *Bucket) deleted(ctx context.Context, key string) (bool, error) {
	if versioned, err := b.isVersioned(ctx); err != nil || !versioned {
		return false, err
	}
	_, err := b.Stat(ctx, key)
	if errors.Is(err, bucket.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// Delete removes a key: with one request where the bucket has no versions, else with a list and one
// request for each version.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.begin(ctx, "delete", key); err != nil {
		return err
	}
	versioned, err := b.isVersioned(ctx)
	if err != nil {
		return err
	}
	if !versioned {
		left, err := b.deleteOne(ctx, key, "")
		if err != nil || !left {
			return err
		}
		b.versions.Store(&left)
	}
	versions, err := b.listVersions(ctx, key)
	// a server that knows nothing of versions
	if e, ok := errors.AsType[*bucket.Error](err); ok && e.Class == nil && refused(err) {
		_, err = b.deleteOne(ctx, key, "")
		return err
	}
	if err != nil {
		return err
	}
	// Delete markers go first and the newest bytes last: whenever this ends, the key is gone for
	// good, or it is listed and can be read.
	for _, markers := range []bool{true, false} {
		for _, v := range slices.Backward(versions) {
			if v.Deleted != markers {
				continue
			}
			if _, err := b.deleteOne(ctx, key, v.ID); err != nil {
				return b.whyRetained(ctx, key, v.ID, err)
			}
		}
	}
	return nil
}

// deleteOne removes one version, or the key when version is empty. left reports whether the bucket
// still has a version of it. Deleting what does not exist is success.
func (b *Bucket) deleteOne(ctx context.Context, key, version string) (left bool, err error) {
	err = b.do(ctx, "delete", key, 0, func(ctx context.Context) error {
		err := b.client.RemoveObject(ctx, b.options.Bucket, b.key(key),
			minio.RemoveObjectOptions{VersionID: version})
		left = headerOf(ctx).Get("X-Amz-Version-Id") != "" ||
			headerOf(ctx).Get("X-Amz-Delete-Marker") == "true"
		return err
	})
	if errors.Is(err, bucket.ErrNotFound) {
		err = nil
	}
	return left, err
}

// headerOf is that of the answer to the request that was made with this context: minio-go does not
// give it for all of them.
func headerOf(ctx context.Context) http.Header {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok && a.header != nil {
		return a.header
	}
	return http.Header{}
}

// whyRetained turns the refusal to delete a version into ErrRetained, if that is why. Servers
// differ in how they say it, so the head of the version is read.
func (b *Bucket) whyRetained(ctx context.Context, key, version string, refusal error) error {
	answered, ok := errors.AsType[*bucket.Error](refusal)
	if !ok || !refused(refusal) {
		return refusal
	}
	e := &bucket.Error{Op: "delete", Key: key, Class: bucket.ErrRetained}
	_, lock, err := b.retained(ctx, "delete", key, version)
	switch {
	case err != nil:
	case lock.until.After(time.Now().Add(-retainMargin)):
		e.Err = fmt.Errorf("until %s (Object Lock, %s)", lock.until.UTC().Format(timeFormat),
			strings.ToLower(string(lock.mode)))
		return e
	case lock.held:
		e.Err, e.Tip = errors.New("by a legal hold"), "somebody put a legal hold on it: it can be "+
			"deleted when that is taken away"
		return e
	}
	// versitygw reports no retention of versions that are not the newest.
	if text := strings.ToLower(refusal.Error()); strings.Contains(text, "object lock") ||
		strings.Contains(text, "worm") {
		e.Err = answered.Err
		return e
	}
	if answered.Class == bucket.ErrDenied {
		answered.Tip = "these credentials may not delete versions: grant DeleteObject and " +
			"DeleteObjectVersion"
	}
	return refusal
}
