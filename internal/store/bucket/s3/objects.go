package s3

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // S3 wants it of whatever is retained
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

func (b *Bucket) begin(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: op, Key: key, Err: err}
	}
	if err := bucket.ValidateKey(key); err != nil {
		return &bucket.Error{Op: op, Err: err}
	}
	return nil
}

// Put writes a key if it does not exist. Where the server does not support that condition, Put asks
// for the key first. Two writes one after the other are then safe, and two at once are not; keys
// named after their content are safe anyway.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	if err := b.begin(ctx, "put", key); err != nil {
		return err
	}
	if err := b.checkLock(ctx); err != nil {
		return err
	}
	honoured, err := b.SupportsConditionalWrites(ctx)
	if err != nil && !unreadableRecord(err) {
		return err
	}
	when := mustNotExist
	if !honoured {
		_, err := b.Stat(ctx, key)
		if err == nil {
			return &bucket.Error{Op: "put", Key: key, Class: bucket.ErrExists}
		}
		if !errors.Is(err, bucket.ErrNotFound) {
			return err
		}
		when = unconditional
	}
	c := condition{when: when, retain: b.retainNew(key)}
	_, err = b.write(ctx, key, data, c)
	if err == nil {
		return b.proveLock(ctx, key)
	}
	if !errors.Is(err, bucket.ErrConflict) {
		return b.lockMissing(err)
	}
	deleted, err := b.deleted(ctx, key)
	if err == nil && !deleted {
		return &bucket.Error{Op: "put", Key: key, Class: bucket.ErrExists}
	}
	if err != nil {
		return err
	}
	c.when = unconditional
	_, err = b.write(ctx, key, data, c)
	return err
}

// condition is what a write depends on, and for how long it is retained.
type condition struct {
	when   string    // one of these below, or an ETag
	retain time.Time // until when the storage retains it; zero for what changes
}

const (
	unconditional = ""
	mustNotExist  = "*"
)

var errPrecondition = minio.ErrorResponse{Code: "PreconditionFailed",
	StatusCode: http.StatusPreconditionFailed}

// write puts a whole key. When an answer was lost and the next one says that the condition does not
// hold, the lost write may have changed the key: then write compares the bytes that are stored.
// Where the key must not exist, it compares them even before the next try: a server may refuse a
// write without reading its bytes, and the broken connection would count as another lost answer.
func (b *Bucket) write(ctx context.Context, key string, data []byte, c condition) (tag string,
	err error) {
	lost := false
	// compare reports whether the key exists, and whether it has our bytes.
	compare := func(ctx context.Context) (there, ours bool, err error) {
		found, foundTag, err := b.getOnce(ctx, key, int64(len(data)))
		switch {
		case err == nil && bytes.Equal(found, data):
			tag = foundTag
			return true, true, nil
		case err == nil, errors.Is(err, errTagged):
			return true, false, nil
		case minio.ToErrorResponse(err).Code == "NoSuchKey":
			return false, false, nil
		}
		return false, false, err
	}
	err = b.do(ctx, "put", key, int64(len(data)), func(ctx context.Context) error {
		if lost && c.when == mustNotExist {
			if there, ours, err := compare(ctx); err != nil || ours {
				return err
			} else if there {
				return errPrecondition
			}
		}
		info, err := b.putOnce(ctx, key, data, c)
		tag = info.ETag
		if err == nil {
			return nil
		}
		if lost && isConflict(err) {
			if _, ours, readErr := compare(ctx); readErr != nil || ours {
				return readErr
			}
		}
		if isConflict(err) && minio.ToErrorResponse(err).Code == "NoSuchKey" {
			return errPrecondition // If-Match of a key that is not there
		}
		answer := minio.ToErrorResponse(err)
		lost = lost || answer.Code == "" || answer.StatusCode >= 500
		return err
	})
	return tag, err
}

// isConflict reports whether an answer says that the condition of a write does not hold.
func isConflict(err error) bool {
	answer := minio.ToErrorResponse(err)
	return answer.Code == "PreconditionFailed" || answer.Code == "NoSuchKey" ||
		answer.StatusCode == http.StatusPreconditionFailed
}

func (b *Bucket) putOnce(ctx context.Context, key string, data []byte, c condition) (
	minio.UploadInfo,
	error) {
	sum := sha256.Sum256(data)
	// The signature covers the hash of the bytes, over TLS too, and needs no chunks.
	o := minio.PutObjectOptions{DisableContentSha256: true, UserMetadata: map[string]string{}}
	if !b.options.ChecksumOff {
		o.UserMetadata["x-amz-checksum-sha256"] = base64.StdEncoding.EncodeToString(sum[:])
	}
	switch c.when {
	case unconditional:
	case mustNotExist:
		o.SetMatchETagExcept("*")
	default:
		o.SetMatchETag(c.when)
	}
	md5Sum := ""
	if !c.retain.IsZero() {
		o.Mode, o.RetainUntilDate = b.lockMode(), c.retain
		sum := md5.Sum(data) //nolint:gosec // S3 wants it of whatever is retained
		md5Sum = base64.StdEncoding.EncodeToString(sum[:])
	}
	b.atRest.put(&o, key, b.options.StorageClass)
	core := minio.Core{Client: b.client}
	return core.PutObject(ctx, b.options.Bucket, b.key(key), bytes.NewReader(data), int64(len(data)),
		md5Sum, hex.EncodeToString(sum[:]), o)
}

// Stat asks for the head of a key.
func (b *Bucket) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if err := b.begin(ctx, "stat", key); err != nil {
		return bucket.Info{}, err
	}
	var info minio.ObjectInfo
	err := b.do(ctx, "stat", key, 0, func(ctx context.Context) (err error) {
		info, err = b.client.StatObject(ctx, b.options.Bucket, b.key(key),
			b.atRest.get(minio.StatObjectOptions{}))
		return err
	})
	return bucket.Info{Key: key, Size: info.Size, Modified: wholeSeconds(info.LastModified),
		Tag: info.ETag}, err
}

// wholeSeconds is the precision that both heads and lists have.
func wholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// listPage is how many keys are asked for at once; no server gives more.
const listPage = 1000

// List asks for one page after the other, each from the last key on, so that a page that fails can
// be asked for again.
func (b *Bucket) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: "list", Key: prefix, Err: err}
	}
	if !canBePrefix(prefix) {
		return nil
	}
	last := ""
	for {
		page, more, err := b.listPage(ctx, prefix, last)
		if err != nil {
			return err
		}
		for _, info := range page {
			if err := ctx.Err(); err != nil {
				return &bucket.Error{Op: "list", Key: prefix, Err: err}
			}
			if info.Key <= last {
				return &bucket.Error{Op: "list", Key: prefix, Err: fmt.Errorf("the storage server "+
					"lists %q after %q", info.Key, last)}
			}
			last = info.Key
			info.Key = strings.TrimPrefix(info.Key, b.key(""))
			// which is ours, not the store's
			if bucket.ValidateKey(info.Key) != nil || info.Key == conditionalKey {
				continue
			}
			if err := fn(info); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// listPage returns names as they are in the S3 bucket.
func (b *Bucket) listPage(ctx context.Context, prefix, after string) (page []bucket.Info, more bool,
	err error) {
	noOwner := false
	o := minio.ListObjectsOptions{Prefix: b.key(prefix), Recursive: true, StartAfter: after,
		MaxKeys: listPage, FetchOwner: &noOwner}
	err = b.do(ctx, "list", prefix, 0, func(ctx context.Context) error {
		page, more = nil, false
		for object := range b.client.ListObjectsIter(ctx, b.options.Bucket, o) {
			if object.Err != nil {
				return object.Err
			}
			page = append(page, bucket.Info{Key: object.Key, Size: object.Size,
				Modified: wholeSeconds(object.LastModified), Tag: object.ETag})
			if len(page) == listPage {
				more = true
				return nil
			}
		}
		return ctx.Err() // the iterator just stops
	})
	return page, more, err
}

// canBePrefix reports whether a key can begin with prefix; a server may understand "../" in its own
// way.
func canBePrefix(prefix string) bool {
	segments := strings.Split(prefix, "/")
	for i, s := range segments {
		if last := i == len(segments)-1; !bucket.ValidSegment(s) && (!last || s != "") ||
			len(prefix) > bucket.MaxKey {
			return false
		}
	}
	return true
}
