package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
)

func (b *S3) begin(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &BucketError{Op: op, Key: key, Err: err}
	}
	if err := ValidateKey(key); err != nil {
		return &BucketError{Op: op, Err: err}
	}
	return nil
}

// Put writes a key if it is not there. Where the server does not honour that condition it looks first, which keeps a key from being written twice one
// after the other, but not from being written by two at once; content-addressed keys do not mind.
func (b *S3) Put(ctx context.Context, key string, data []byte) error {
	if err := b.begin(ctx, "put", key); err != nil {
		return err
	}
	honoured, err := b.honours(ctx)
	if err != nil {
		return err
	}
	when := mustNotExist
	if !honoured {
		_, err := b.Stat(ctx, key)
		if err == nil {
			return &BucketError{Op: "put", Key: key, Class: ErrExists}
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		when = unconditional
	}
	_, err = b.write(ctx, key, data, when)
	if errors.Is(err, ErrConflict) {
		return &BucketError{Op: "put", Key: key, Class: ErrExists}
	}
	return err
}

// Conditions of a write besides an ETag.
const (
	unconditional = ""
	mustNotExist  = "*"
)

// write puts a whole key. When an answer was lost and the next one is that the condition does not hold, it may have been we who changed the key: then
// the bytes there tell.
func (b *S3) write(ctx context.Context, key string, data []byte, when string) (tag string, err error) {
	lost := false
	err = b.do(ctx, "put", key, int64(len(data)), func(ctx context.Context) error {
		info, err := b.putOnce(ctx, key, data, when)
		tag = info.ETag
		if err == nil {
			return nil
		}
		if lost && isConflict(err) {
			there, thereTag, readErr := b.getOnce(ctx, key)
			if readErr != nil && minio.ToErrorResponse(readErr).Code != "NoSuchKey" {
				return readErr
			}
			if readErr == nil && bytes.Equal(there, data) {
				tag = thereTag
				return nil
			}
		}
		if isConflict(err) && minio.ToErrorResponse(err).Code == "NoSuchKey" {
			return minio.ErrorResponse{Code: "PreconditionFailed", StatusCode: http.StatusPreconditionFailed} // If-Match of a key that is not there
		}
		answer := minio.ToErrorResponse(err)
		lost = lost || answer.Code == "" || answer.StatusCode >= 500
		return err
	})
	return tag, err
}

// isConflict tells whether an answer says that the condition of a write does not hold.
func isConflict(err error) bool {
	answer := minio.ToErrorResponse(err)
	return answer.Code == "PreconditionFailed" || answer.Code == "NoSuchKey" || answer.StatusCode == http.StatusPreconditionFailed
}

func (b *S3) putOnce(ctx context.Context, key string, data []byte, when string) (minio.UploadInfo, error) {
	sum := sha256.Sum256(data)
	// The signature covers the hash of the bytes, over TLS too, and needs no chunks.
	o := minio.PutObjectOptions{DisableContentSha256: true, UserMetadata: map[string]string{}}
	if !b.options.ChecksumOff {
		o.UserMetadata["x-amz-checksum-sha256"] = base64.StdEncoding.EncodeToString(sum[:])
	}
	switch when {
	case unconditional:
	case mustNotExist:
		o.SetMatchETagExcept("*")
	default:
		o.SetMatchETag(when)
	}
	core := minio.Core{Client: b.client}
	return core.PutObject(ctx, b.options.Bucket, b.key(key), bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), o)
}

// Stat asks for the head of a key.
func (b *S3) Stat(ctx context.Context, key string) (Info, error) {
	if err := b.begin(ctx, "stat", key); err != nil {
		return Info{}, err
	}
	var info minio.ObjectInfo
	err := b.do(ctx, "stat", key, 0, func(ctx context.Context) (err error) {
		info, err = b.client.StatObject(ctx, b.options.Bucket, b.key(key), minio.StatObjectOptions{})
		return err
	})
	return Info{Key: key, Size: info.Size}, err
}

// listPage is how many keys are asked for at once; no server gives more.
const listPage = 1000

// List asks for one page after the other, each from the last key on, so that a page that fails can be asked for again.
func (b *S3) List(ctx context.Context, prefix string, fn func(Info) error) error {
	if err := ctx.Err(); err != nil {
		return &BucketError{Op: "list", Key: prefix, Err: err}
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
				return &BucketError{Op: "list", Key: prefix, Err: err}
			}
			if info.Key <= last {
				return &BucketError{Op: "list", Key: prefix, Err: fmt.Errorf("the storage server lists %q after %q", info.Key, last)}
			}
			last = info.Key
			info.Key = strings.TrimPrefix(info.Key, b.key(""))
			if ValidateKey(info.Key) != nil || info.Key == conditionalKey { // which is ours, not the store's
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
func (b *S3) listPage(ctx context.Context, prefix, after string) (page []Info, more bool, err error) {
	noOwner := false
	o := minio.ListObjectsOptions{Prefix: b.key(prefix), Recursive: true, StartAfter: after, MaxKeys: listPage, FetchOwner: &noOwner}
	err = b.do(ctx, "list", prefix, 0, func(ctx context.Context) error {
		page, more = nil, false
		for object := range b.client.ListObjectsIter(ctx, b.options.Bucket, o) {
			if object.Err != nil {
				return object.Err
			}
			page = append(page, Info{Key: object.Key, Size: object.Size})
			if len(page) == listPage {
				more = true
				return nil
			}
		}
		return ctx.Err() // the iterator just stops
	})
	return page, more, err
}

// canBePrefix tells whether a key can begin so; a server may understand "../" in its own way.
func canBePrefix(prefix string) bool {
	segments := strings.Split(prefix, "/")
	for i, s := range segments {
		if last := i == len(segments)-1; !validSegment(s) && (!last || s != "") || len(prefix) > maxKey {
			return false
		}
	}
	return true
}
