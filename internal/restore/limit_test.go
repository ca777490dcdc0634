package restore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// hangingWriter is a target whose webhook hangs for 10 s, for one object.
type hangingWriter struct {
	*memory
	ref  string
	sent int
}

// Create implements Writer.
func (w *hangingWriter) Create(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if refOf(u).String() != w.ref {
		return w.memory.Create(ctx, k, u)
	}
	w.sent++
	time.Sleep(10 * time.Second)
	return nil, apierrors.NewInternalError(errors.New("failed calling webhook"))
}

// newLimited is an operation whose units have 15 s. Its caller reads failed at the end, the units
// for which OnFailed was called.
func newLimited(t *testing.T) (x *trial, failed func() []string) {
	t.Helper()
	x = newTrial(t, twoTenants(t), newMemory(t, "target"))
	x.hooks.Limit = func(ctx context.Context, _ Unit) (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(ctx, 15*time.Second, errLimit)
	}
	var mu sync.Mutex
	var units []string
	x.hooks.OnFailed = func(ctx context.Context, u Unit) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			t.Error("the limit has ended the context of OnFailed")
		}
		units = append(units, u.Name)
	}
	return x, func() []string { return units }
}

var errLimit = errors.New("it was paused for too long")

// checkLimited runs x, and checks that one/w has failed for its limit.
func checkLimited(t *testing.T, x *trial, failed func() []string) {
	t.Helper()
	failures, err := x.run(t)
	incomplete, ok := errors.AsType[*IncompleteError](err)
	if !ok || !errors.Is(incomplete.First, errLimit) {
		t.Fatalf("it ended with %v", err)
	}
	if !slices.ContainsFunc(failures, func(f string) bool {
		return strings.HasPrefix(f, "one/w: ") && strings.Contains(f, errLimit.Error())
	}) {
		t.Errorf("no failure says why: %q", failures)
	}
	if !slices.Contains(failed(), "one/w") {
		t.Errorf("OnFailed was called for %q", failed())
	}
}

// TestNothingIsSentAgainPastTheLimit: a webhook of the target hangs, for a shared object and for
// one of a unit. Past the limit no request is sent again, and the units fail with its cause.
func TestNothingIsSentAgainPastTheLimit(t *testing.T) {
	for _, ref := range []string{classOne, "Cluster.cluster.x-k8s.io/one/w"} {
		t.Run(ref, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, failed := newLimited(t)
				writer := &hangingWriter{memory: x.target, ref: ref}
				x.writer = writer
				checkLimited(t, x, failed)
				if writer.sent != 2 {
					t.Errorf("it was sent %d times", writer.sent)
				}
			})
		})
	}
}

// TestDryRunsEndWithTheLimit: the target does not answer about an object.
func TestDryRunsEndWithTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, failed := newLimited(t)
		x.target.refuseDry = func(u *unstructured.Unstructured) error {
			if refOf(u).String() == "Cluster.cluster.x-k8s.io/one/w" {
				return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
			}
			return nil
		}
		checkLimited(t, x, failed)
	})
}
