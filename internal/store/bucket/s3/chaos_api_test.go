//go:build api

package s3_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/buckettest"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// faultyProxy is a proxy that fails a share of all requests, before or after they have an effect.
type faultyProxy struct {
	*proxy
	mu   sync.Mutex
	rand *rand.Rand
	hits map[string]int
}

func (w *faultyProxy) pick(kinds []string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rand.Float64() >= 0.15 {
		return ""
	}
	kind := kinds[w.rand.IntN(len(kinds))]
	w.hits[kind]++
	return kind
}

var faultKinds = []string{"500", "503", "reset", "500 after", "503 after", "reset after", "cut"}

func (w *faultyProxy) fault(resp http.ResponseWriter, r *http.Request) bool {
	kinds := faultKinds
	if r.Method != http.MethodGet {
		kinds = kinds[:len(kinds)-1]
	}
	kind := w.pick(kinds)
	answer := func(status int, code string) {
		resp.WriteHeader(status)
		_, _ = io.WriteString(resp, "<Error><Code>"+code+"</Code><Message>try again</Message></Error>")
	}
	switch kind {
	case "500 after", "503 after", "reset after":
		w.record(r)
	}
	switch kind {
	case "":
		return false
	case "500", "500 after":
		answer(http.StatusInternalServerError, "InternalError")
	case "503", "503 after":
		answer(http.StatusServiceUnavailable, "SlowDown")
	case "reset", "reset after":
		abort()
	case "cut":
		w.cut(1<<20, false)(resp, r)
	}
	return true
}

// TestAPIS3FulfilsTheContractUnderFaults: transient errors are retried, the result of a request
// without a response is read back, and the whole contract holds.
func TestAPIS3FulfilsTheContractUnderFaults(t *testing.T) {
	for i, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			p := newProxy(t, s3test.Start(t, s3test.Options{Kind: kind}))
			w := &faultyProxy{proxy: p, rand: rand.New(rand.NewPCG(uint64(i), 4)), hits: map[string]int{}}
			open := func(t *testing.T) *s3.Bucket {
				p.set(nil)
				b, _ := p.bucket(t, fmt.Sprintf("faults-%d", buckets.Add(1)))
				b.HurryRetries(time.Minute, 10*time.Second)
				p.set(w.fault)
				return b
			}
			buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t) })
			buckettest.RunConditional(t, func(t *testing.T) buckettest.ConditionalBucket { return open(t) })
			buckettest.RunRemover(t, func(t *testing.T) buckettest.RemoverBucket { return open(t) })
			for _, kind := range faultKinds {
				if w.hits[kind] == 0 {
					t.Errorf("%s was never injected: %v", kind, w.hits)
				}
			}
		})
	}
}
