package s3

import (
	"time"

	"github.com/mgmtd/mgmtd/internal/retry"
)

// HurryRetries makes an S3 bucket give up after total, for tests of what happens then.
func (b *Bucket) HurryRetries(total, attempt time.Duration) {
	b.retry = retryPolicy{
		backoff: retry.Backoff{First: time.Millisecond, Longest: 20 * time.Millisecond, Jitter: true},
		total:   total, refused: total / 4, attempt: attempt,
	}
}
