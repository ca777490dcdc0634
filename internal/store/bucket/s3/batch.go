package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"path"
	"slices"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// batchSize is how many keys are deleted together. S3 takes 1,000 in a request; a batch has to
	// end while it may still be made (retention.SweepEnds), also on a slow server.
	batchSize = 250
	// mostEntries is how many keys or versions S3 takes in one request.
	mostEntries = 1000
	// batchRequests limits how many requests a batch makes at once, to list versions and to find
	// out why they are retained.
	batchRequests = 8
)

// BatchSize implements bucket.BatchRemover. Google's servers do not know DeleteObjects (minio-go
// v7.4.1, api-remove.go, useMultiDeleteForBulkDelete); others answer that they do not.
func (b *Bucket) BatchSize() int {
	if b.unbatched.Load() {
		return 1
	}
	return batchSize
}

// DeleteBatch implements bucket.BatchRemover: with one request where the bucket has no versions,
// else with a list for each folder and up to three requests. The requests carry the MD5 and the
// SHA-256 of their bytes, which servers ask for.
func (b *Bucket) DeleteBatch(ctx context.Context, keys []string) map[string]error {
	d := &batch{Bucket: b, failed: map[string]error{}}
	valid := make([]string, 0, len(keys))
	for _, key := range keys {
		if err := b.begin(ctx, "delete", key); err != nil {
			d.failed[key] = err
		} else {
			valid = append(valid, key)
		}
	}
	versioned, err := b.isVersioned(ctx)
	if err != nil {
		d.fail(err, valid...)
		return d.failed
	}
	if !versioned {
		valid = d.deleteKeys(ctx, valid)
		if len(valid) == 0 {
			return d.failed
		}
		versioned = true
		b.versions.Store(&versioned)
	}
	d.deleteVersions(ctx, valid)
	return d.failed
}

// batch is one DeleteBatch.
type batch struct {
	*Bucket
	mu     sync.Mutex
	failed map[string]error
}

// fail records an error for keys.
func (d *batch) fail(err error, keys ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		d.failed[key] = err
		if e, ok := err.(*bucket.Error); ok && e.Key != key { //nolint:errorlint // not what it wraps
			named := *e
			named.Key = key
			d.failed[key] = &named
		}
	}
}

// deleteKeys deletes keys of a bucket without versions. It returns those of which the bucket turns
// out to have versions.
func (d *batch) deleteKeys(ctx context.Context, keys []string) (left []string) {
	entries := make([]entry, len(keys))
	for i, key := range keys {
		entries[i] = entry{key: key}
	}
	for e, o := range d.deleteEntries(ctx, entries) {
		switch {
		case o.err != nil:
			d.fail(o.err, e.key)
		case o.left:
			left = append(left, e.key)
		}
	}
	return left
}

// deleteVersions deletes all versions of keys: delete markers first, then all bytes but the newest,
// then these. Whenever this ends, a key is gone for good, or it is listed and can be read; that is
// the order of Delete. A key of which a version stays is left alone from then on.
func (d *batch) deleteVersions(ctx context.Context, keys []string) {
	versions := d.listFolders(ctx, keys)
	steps := make([][]entry, 3)
	for key, list := range versions {
		seen := false // bytes, of which the newest come first
		for _, v := range list {
			step := 0
			if !v.Deleted {
				step = 1
				if !seen {
					seen, step = true, 2
				}
			}
			steps[step] = append(steps[step], entry{key: key, version: v.ID})
		}
	}
	for _, step := range steps {
		step = slices.DeleteFunc(step, func(e entry) bool { return d.failed[e.key] != nil })
		for chunk := range slices.Chunk(step, mostEntries) {
			d.refusals(ctx, d.deleteEntries(ctx, chunk))
		}
	}
}

// refusals records which versions were not deleted, and why.
func (d *batch) refusals(ctx context.Context, outcomes map[entry]outcome) {
	var g task.Group
	g.SetLimit(batchRequests)
	for e, o := range outcomes {
		if o.err == nil {
			continue
		}
		g.Go(func() error {
			err := o.err
			if !errors.Is(err, bucket.ErrUnbatched) {
				err = d.whyRetained(ctx, e.key, e.version, err)
			}
			d.fail(err, e.key)
			return nil
		})
	}
	if err := g.Wait(); err != nil { // a panic
		for e := range outcomes {
			d.fail(err, e.key)
		}
	}
}

// listFolders returns the versions of keys, the newest first. One list serves all keys of a folder.
// A key whose versions could not be listed fails with ErrUnbatched: somebody who may write can make
// a folder any size, and Delete lists one key alone.
func (d *batch) listFolders(ctx context.Context, keys []string) map[string][]bucket.Version {
	folders := map[string][]string{}
	for _, key := range keys {
		folder := path.Dir(key) + "/"
		folders[folder] = append(folders[folder], key)
	}
	found := map[string][]bucket.Version{}
	var g task.Group
	g.SetLimit(batchRequests)
	for folder, in := range folders {
		g.Go(func() error {
			prefix := folder
			if len(in) == 1 {
				prefix = in[0]
			}
			list, err := d.listEach(ctx, prefix, in)
			if err != nil {
				d.fail(unbatched(err), in...)
				return nil
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			maps.Copy(found, list)
			return nil
		})
	}
	if err := g.Wait(); err != nil { // a panic
		d.fail(err, keys...)
		return nil
	}
	return found
}

// listEach returns the versions of keys that begin with a prefix.
func (b *Bucket) listEach(ctx context.Context, prefix string, keys []string) (
	map[string][]bucket.Version, error) {
	wanted := map[string]string{}
	for _, key := range keys {
		wanted[b.key(key)] = key
	}
	var found map[string][]bucket.Version
	err := b.eachVersion(ctx, prefix, func() { found = map[string][]bucket.Version{} },
		func(v minio.ObjectInfo) {
			if key, ok := wanted[v.Key]; ok {
				found[key] = append(found[key], versionOf(v))
			}
		})
	for _, versions := range found {
		sortVersions(versions)
	}
	return found, err
}

// entry is a version that is to go, or a key where version is empty.
type entry struct{ key, version string }

// outcome is what became of an entry. left reports that the bucket still has a version of the key.
type outcome struct {
	err  error
	left bool
}

// unbatched makes the error of a request that of a key that Delete has to be called for. The end of
// the context stays what it is.
func unbatched(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", bucket.ErrUnbatched, err)
}

var errUnmentioned = errors.New("the answer does not say what became of it")

// deleteEntries deletes entries with one request. What the server was too busy for is tried again,
// and it alone. Every entry has an outcome. Deleting what does not exist is success.
func (b *Bucket) deleteEntries(ctx context.Context, entries []entry) map[entry]outcome {
	outcomes := map[entry]outcome{}
	open := entries
	status := 0 // of the last answer
	err := b.do(ctx, "delete", "", 0, func(ctx context.Context) error {
		busy, err := b.deleteOnce(ctx, open, outcomes)
		if len(busy) > 0 {
			open = busy
		}
		status = statusOf(ctx)
		return err
	})
	switch e, ok := errors.AsType[*bucket.Error](err); {
	case err == nil:
		if len(outcomes) == 0 {
			b.unbatched.Store(true) // the server answered something else
		}
		err = unbatched(errUnmentioned)
	case ok && status != 0:
		if refused(err) && e.Class == nil || e.Class == bucket.ErrNotFound {
			b.unbatched.Store(true) // the server does not know the request
		}
		err = unbatched(err)
	}
	for _, e := range entries {
		if _, ok := outcomes[e]; !ok {
			outcomes[e] = outcome{err: err}
		}
	}
	return outcomes
}

// deleteOnce makes one request and adds what became of entries to outcomes. busy are those that the
// server was too busy for, with the error that says so. Any other error is that of the request.
func (b *Bucket) deleteOnce(ctx context.Context, entries []entry, outcomes map[entry]outcome) (
	busy []entry, err error) {
	named := map[entry]entry{} // as the server names them
	for _, e := range entries {
		named[entry{b.key(e.key), e.version}] = e
	}
	results, err := b.client.RemoveObjectsWithIter(ctx, b.options.Bucket, b.objects(entries),
		minio.RemoveObjectsOptions{})
	if err != nil {
		return nil, err
	}
	var last error
	for r := range results {
		if r.Err != nil && statusOf(ctx) != http.StatusOK {
			return nil, r.Err
		}
		e, ok := named[entry{r.ObjectName, r.ObjectVersionID}]
		if !ok { // The answer names a version of a key that the request did not.
			e, ok = named[entry{key: r.ObjectName}]
		}
		if !ok {
			continue
		}
		if r.Err == nil {
			outcomes[e] = outcome{left: r.DeleteMarker || r.DeleteMarkerVersionID != "" ||
				r.ObjectVersionID != ""}
			continue
		}
		f := b.classifyError("delete", e.key, r.Err, &attempt{})
		switch {
		case f.retry:
			busy, last = append(busy, e), r.Err
		case errors.Is(f.err, bucket.ErrNotFound):
			outcomes[e] = outcome{}
		default:
			outcomes[e] = outcome{err: f.err}
		}
	}
	if last == nil && len(outcomes) == 0 {
		last = ctx.Err() // the iterator just stops
	}
	return busy, last
}

// statusOf is the HTTP status of the answer to the request that was made with this context, or 0.
func statusOf(ctx context.Context) int {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a.status
	}
	return 0
}

// objects are entries as minio-go takes them.
func (b *Bucket) objects(entries []entry) iter.Seq[minio.ObjectInfo] {
	return func(yield func(minio.ObjectInfo) bool) {
		for _, e := range entries {
			if !yield(minio.ObjectInfo{Key: b.key(e.key), VersionID: e.version}) {
				return
			}
		}
	}
}
