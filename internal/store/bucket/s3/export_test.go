package s3

import "time"

// HurryRetries makes an S3 bucket give up after total, for tests of what happens then.
func (b *Bucket) HurryRetries(total, attempt time.Duration) {
	b.retry = retryPolicy{first: time.Millisecond, longest: 20 * time.Millisecond, total: total,
		refused: total / 4, attempt: attempt}
}
