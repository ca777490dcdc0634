package s3

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// retryPolicy says how long a request is tried again. minio-go itself waits up to 200 ms after an
// answer that it would try again.
type retryPolicy struct {
	first   time.Duration // longest wait before the second try; doubles from there
	longest time.Duration // of one wait
	total   time.Duration // after which no new try begins
	// the same where nothing listens: a server that restarts is back soon, a wrong port never
	refused time.Duration
	attempt time.Duration // for one request, besides the time that its bytes may take
}

func defaultRetry() retryPolicy {
	return retryPolicy{first: 250 * time.Millisecond, longest: 5 * time.Second, total: time.Minute,
		refused: 10 * time.Second, attempt: time.Minute}
}

// slowest is the speed in bytes a second that is still waited for.
const slowest = 32 << 10

// wait is random up to a limit that doubles, so that many writers do not come back at once.
func (p retryPolicy) wait(failures int) time.Duration {
	most := min(p.first<<min(failures, 16), p.longest)
	return time.Duration(rand.Int64N(int64(most) + 1)) //nolint:gosec // jitter
}

// sleep waits before the next try; false when that would be too late, or ctx ended.
func (p retryPolicy) sleep(ctx context.Context, since time.Time, failures int,
	limit time.Duration) bool {
	wait := p.wait(failures)
	if time.Since(since)+wait > limit {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// attempt is what was seen of one request on the wire. minio-go keeps neither the kind of a broken
// connection nor the headers of an error.
type attempt struct {
	status int
	header http.Header
	err    error
}

type attemptKey struct{}

// witness fills in the attempt of the context.
type witness struct{ next http.RoundTripper }

// RoundTrip passes a request on.
func (w witness) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
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
// moves. call gets a context that ends with the try, and returns what minio-go says. What comes out
// is a *BucketError, a *UsageError without credentials, or an error that wraps ctx.Err().
func (b *Bucket) do(ctx context.Context, op, key string, size int64,
	call func(ctx context.Context) error) error {
	begin := time.Now()
	for failures := 0; ; failures++ {
		seen := &attempt{}
		try, cancel := context.WithTimeout(context.WithValue(ctx, attemptKey{}, seen),
			b.retry.attempt+time.Duration(size/slowest)*time.Second)
		err := call(try)
		timedOut := try.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return &bucket.Error{Op: op, Key: key, Err: ctx.Err()}
		}
		if timedOut {
			err = errTooSlow
		}
		v := b.judge(op, key, err, seen)
		limit := b.retry.total
		if v.refused {
			limit = b.retry.refused
		}
		if !v.again || v.once && failures > 0 || !b.retry.sleep(ctx, begin, failures, limit) {
			if ctx.Err() != nil {
				return &bucket.Error{Op: op, Key: key, Err: ctx.Err()}
			}
			return v.err
		}
	}
}
