package kube

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/retry"
)

// tries bounds the requests of one Retry: with Backoff about a minute of an API server that does
// not answer, and any number of conflicts that matter.
const tries = 16

// quickTries are the conflicts after which Retry begins to wait. Controllers touch objects within
// milliseconds of each other, so most conflicts are gone at once.
const quickTries = 5

// Retry repeats a read and a write that follows from it while the failure may pass: conflicts at
// once, transient errors with back-off. It returns the last error of change, or the cause of ctx.
func Retry(ctx context.Context, change func() error) error {
	return retry.Do(ctx, func(failures int, err error) (time.Duration, bool) {
		conflict := apierrors.IsConflict(err)
		switch {
		case failures == tries || !conflict && !Transient(err):
			return 0, false
		case conflict && failures <= quickTries:
			return 0, true
		default:
			return Backoff(failures, err), true
		}
	}, func(context.Context) error { return change() })
}
