package s3

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// retryPolicy says for how long a request is tried again. minio-go adds up to 200 ms of its own to
// the wait after an answer that it considers worth a retry.
type retryPolicy struct {
	backoff retry.Backoff
	total   time.Duration // after which no new try begins
	// refused is total where nothing listens: a server that restarts is back soon, a wrong port
	// never is.
	refused time.Duration
	attempt time.Duration // for one request, without the time for its bytes
}

func defaultRetry() retryPolicy {
	return retryPolicy{backoff: retry.Backoff{First: 250 * time.Millisecond, Longest: 5 * time.Second,
		Jitter: true}, total: time.Minute, refused: 10 * time.Second, attempt: time.Minute}
}

// slowest is the lowest acceptable speed of a transfer, in bytes a second.
const slowest = 32 << 10

// attempt is one request as it was on the wire. minio-go passes on neither the kind of a broken
// connection nor the headers of an error.
type attempt struct {
	status int
	header http.Header
	err    error
}

type attemptKey struct{}

// recordingTransport fills in the attempt of the request's context.
type recordingTransport struct{ next http.RoundTripper }

// RoundTrip passes a request on.
func (t recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if a, ok := r.Context().Value(attemptKey{}).(*attempt); ok {
		*a = attempt{err: err}
		if resp != nil {
			a.status, a.header = resp.StatusCode, resp.Header
		}
	}
	return resp, err
}

var errTooSlow = errors.New("no answer in time")

// do runs a request until it succeeds, fails for good, or time is up. size is how many bytes it
// moves. call gets a context that ends with the try, and returns what minio-go returns. The error
// is a *bucket.Error, a *bucket.UsageError without credentials, or an error that wraps ctx.Err().
//
// The loop is here and not in a wrapper around a Bucket: a write whose answer was lost reads the
// key back before its next try, and a read goes on where the last one broke off.
func (b *Bucket) do(ctx context.Context, op, key string, size int64,
	call func(ctx context.Context) error) error {
	begin := time.Now()
	var last failure
	next := func(failures int, _ error) (time.Duration, bool) {
		limit := b.retry.total
		if last.refused {
			limit = b.retry.refused
		}
		wait := b.retry.backoff.Wait(failures)
		return wait, last.retry && !(last.once && failures > 1) && time.Since(begin)+wait <= limit
	}
	err := retry.Do(ctx, next, func(ctx context.Context) error {
		seen := &attempt{}
		try, cancel := context.WithTimeout(context.WithValue(ctx, attemptKey{}, seen),
			b.retry.attempt+time.Duration(size/slowest)*time.Second)
		defer cancel()
		err := call(try)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			last = failure{}
			return ctx.Err()
		}
		if try.Err() != nil {
			err = errTooSlow
		}
		last = b.classifyError(op, key, err, seen)
		return last.err
	})
	if err != nil && ctx.Err() != nil {
		return &bucket.Error{Op: op, Key: key, Err: ctx.Err()}
	}
	return err
}
