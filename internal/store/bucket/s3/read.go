package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Get opens a key. The reader goes on where a broken connection left off, and never gives fewer
// bytes than the key has without an error.
func (b *Bucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := b.begin(ctx, "get", key); err != nil {
		return nil, err
	}
	r := &reader{ctx: ctx, bucket: b, key: key}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// s3Reader is the content of one key.
type reader struct {
	ctx    context.Context // of the Get that opened it
	bucket *Bucket
	key    string
	// version is one of the key's that is not the newest; empty for that one.
	version string

	body   io.ReadCloser // nil when it has to be opened again
	cancel context.CancelFunc
	stall  *time.Timer // ends a body that stopped coming
	size   int64
	etag   string
	read   int64

	failures int // one after the other, without a byte between
	since    time.Time
}

// open asks for the rest of the content. The request's context outlives the try that do gives: it
// ends with the reader, or when no byte comes for long.
func (r *reader) open() error {
	return r.bucket.do(r.ctx, "get", r.key, 0, func(try context.Context) error {
		ctx, cancel := context.WithCancel(context.WithValue(r.ctx, attemptKey{}, try.Value(attemptKey{})))
		stopTry := context.AfterFunc(try, cancel) // until the head is there
		o := r.bucket.atRest.get(minio.GetObjectOptions{VersionID: r.version})
		if r.read > 0 {
			o.Set("Range", fmt.Sprintf("bytes=%d-", r.read))
			if err := o.SetMatchETag(r.etag); err != nil {
				cancel()
				return err
			}
		}
		core := minio.Core{Client: r.bucket.client}
		body, info, header, err := core.GetObject(ctx, r.bucket.options.Bucket, r.bucket.key(r.key), o)
		if err == nil && r.read > 0 && header.Get("Content-Range") == "" {
			// It has no ranges and sends all from the beginning.
			if _, copyErr := io.CopyN(io.Discard, body, r.read); copyErr != nil {
				err = errors.Join(copyErr, body.Close())
			}
		}
		if err == nil && info.Size < 0 {
			err = errors.Join(errNoLength, body.Close())
		}
		if err == nil && !stopTry() {
			err = errors.Join(try.Err(), body.Close())
		}
		if err != nil {
			cancel()
			return err
		}
		if r.read == 0 {
			r.size, r.etag = info.Size, info.ETag
		}
		r.body, r.cancel = body, cancel
		r.stall = time.AfterFunc(r.bucket.retry.attempt, cancel)
		r.stall.Stop() // runs during reads only: the caller may take his time
		return nil
	})
}

// Read reads, and opens the key again when the connection breaks.
func (r *reader) Read(p []byte) (int, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return 0, &bucket.Error{Op: "get", Key: r.key, Err: err}
		}
		if r.read == r.size {
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		if r.body == nil {
			if err := r.open(); err != nil {
				return 0, err // which has tried for long enough
			}
		}
		r.stall.Reset(r.bucket.retry.attempt)
		n, err := r.body.Read(p[:min(int64(len(p)), r.size-r.read)])
		r.stall.Stop()
		if n > 0 {
			r.read += int64(n)
			r.failures = 0
			return n, nil
		}
		if err == nil {
			continue
		}
		if err := r.again(err); err != nil {
			return 0, err
		}
	}
}

// again waits before the key is opened once more; an error when that has been tried for long enough
// without a byte coming.
func (r *reader) again(cause error) error {
	r.close()
	if r.ctx.Err() != nil {
		return &bucket.Error{Op: "get", Key: r.key, Err: r.ctx.Err()}
	}
	if r.failures == 0 {
		r.since = time.Now()
	}
	r.failures++
	policy := r.bucket.retry
	wait := policy.backoff.Wait(r.failures)
	if time.Since(r.since)+wait > policy.total || retry.Sleep(r.ctx, wait) != nil {
		if r.ctx.Err() != nil {
			return &bucket.Error{Op: "get", Key: r.key, Err: r.ctx.Err()}
		}
		text := fmt.Sprintf("it ends after %d of %d bytes, again and again: %v", r.read, r.size, cause)
		return &bucket.Error{Op: "get", Key: r.key, Class: bucket.ErrUnreachable,
			Err: errors.New(r.bucket.creds.clean(text))}
	}
	return nil
}

func (r *reader) close() {
	if r.body != nil {
		r.stall.Stop()
		r.cancel()
		_ = r.body.Close() // nothing is lost with it
		r.body = nil
	}
}

// Close ends the request.
func (r *reader) Close() error {
	r.close()
	return nil
}

// GetTagged reads a key and its ETag; a server that gives none is not one that can fence.
func (b *Bucket) GetTagged(ctx context.Context, key string) (data []byte, tag string, err error) {
	if err := b.begin(ctx, "get", key); err != nil {
		return nil, "", err
	}
	tooLarge := false
	err = b.do(ctx, "get", key, bucket.MaxTagged, func(ctx context.Context) (err error) {
		data, tag, err = b.getOnce(ctx, key, bucket.MaxTagged)
		if tooLarge = errors.Is(err, errTagged); tooLarge {
			return nil
		}
		return err
	})
	if tooLarge {
		return nil, "", &bucket.CorruptError{Key: key, Reason: errTagged.Error()}
	}
	return data, tag, err
}

var errNoLength = errors.New("the storage server does not say how long the content is")

var errTagged = fmt.Errorf("it is larger than %d bytes", bucket.MaxTagged)

// getOnce reads a whole key in one request: bytes and ETag are of the same write. errTagged when it
// has more bytes than most.
func (b *Bucket) getOnce(ctx context.Context, key string, most int64) ([]byte, string, error) {
	core := minio.Core{Client: b.client}
	body, info, _, err := core.GetObject(ctx, b.options.Bucket, b.key(key),
		b.atRest.get(minio.GetObjectOptions{}))
	if err != nil {
		return nil, "", err
	}
	defer body.Close()
	if info.Size > most {
		return nil, "", errTagged
	}
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.LimitReader(body, most)); err != nil {
		return nil, "", err
	}
	if int64(data.Len()) != info.Size {
		return nil, "", io.ErrUnexpectedEOF
	}
	return data.Bytes(), info.ETag, nil
}
