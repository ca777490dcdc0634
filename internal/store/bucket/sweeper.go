package bucket

import (
	"context"
	"time"
)

// Sweeper is the ability to remove what writes that were killed left behind. No key names such a
// file, so nothing else ever finds it. A bucket whose writes leave nothing has no such ability.
type Sweeper interface {
	// Sweep removes the remains of writes that began before a time, and calls removed with the size
	// of each. It never removes a key. A remain that another call has removed meanwhile is success.
	Sweep(ctx context.Context, before time.Time, removed func(size int64)) error
}
