package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// One daemon serves several management clusters. An API server that is hostile or broken must not
// take its memory or hold it up for ever, so every answer has an end.
const (
	// maxItem bounds one object of a list and one event of a watch. An API server stores objects of
	// up to 1.5 MiB (etcd --max-request-bytes); managedFields and a conversion may add to that.
	maxItem = 16 << 20
	// maxItems bounds a list. Kubernetes supports 150,000 Pods and fewer of anything else.
	maxItems = 500_000
	// maxEmptyPages bounds pages in a row that have no object and promise another page.
	maxEmptyPages = 100
	// maxWaiting bounds the bytes of a page that wait until the page is complete.
	maxWaiting = 512 << 20
	// maxAnswer bounds an answer that is read whole: one object, or a document of the discovery.
	maxAnswer = 64 << 20
	// maxSilence is how long an API server may send nothing. It ends a request that is no watch after
	// a minute itself (kube-apiserver --request-timeout).
	maxSilence = 2 * time.Minute
)

// ErrUnbounded means that an API server sends more than any real one has.
var ErrUnbounded = errors.New("the API server does not come to an end")

// itemReader limits the bytes between two calls of next.
type itemReader struct {
	from io.Reader
	left int
}

// next begins an object. The decoder has read a part of it already, perhaps.
func (r *itemReader) next() { r.left = maxItem }

func (r *itemReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("%w: an object has more than %d MiB", ErrUnbounded, maxItem>>20)
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// streamKey marks the context of a request whose answer is read object by object.
type streamKey struct{}

func streamed(ctx context.Context) context.Context {
	return context.WithValue(ctx, streamKey{}, true)
}

// silenceError means that an API server sent nothing for too long. It is a net.Error, so that the
// request is tried again.
type silenceError struct{}

func (silenceError) Error() string   { return "the API server sends nothing" }
func (silenceError) Timeout() bool   { return true }
func (silenceError) Temporary() bool { return true }

// guard ends requests whose answer does not come, or has more than most bytes and is not streamed.
type guard struct {
	next    http.RoundTripper
	silence time.Duration
	most    int64
}

// RoundTrip waits for the head of an answer.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	b := &guardedBody{cancel: cancel, silence: g.silence, left: g.most, most: g.most}
	b.timer = time.AfterFunc(g.silence, func() {
		b.silent.Store(true)
		cancel()
	})
	resp, err := g.next.RoundTrip(r.WithContext(ctx))
	b.timer.Stop()
	if err != nil {
		cancel()
		return nil, b.reason(err)
	}
	stream, _ := r.Context().Value(streamKey{}).(bool)
	b.endless = stream && resp.StatusCode == http.StatusOK
	b.body, resp.Body = resp.Body, b
	return resp, nil
}

// guardedBody is an answer that is read. The timer runs during reads only: the reader may take its
// time.
type guardedBody struct {
	body       io.ReadCloser
	cancel     context.CancelFunc
	timer      *time.Timer
	silence    time.Duration
	silent     atomic.Bool
	endless    bool
	left, most int64
}

func (b *guardedBody) Read(p []byte) (int, error) {
	if !b.endless && b.left <= 0 {
		return 0, fmt.Errorf("%w: an answer has more than %d MiB", ErrUnbounded, b.most>>20)
	}
	if !b.endless {
		p = p[:min(int64(len(p)), b.left)]
	}
	b.timer.Reset(b.silence)
	n, err := b.body.Read(p)
	b.timer.Stop()
	b.left -= int64(n)
	return n, b.reason(err)
}

func (b *guardedBody) Close() error {
	b.cancel()
	return b.body.Close()
}

// reason replaces the error of the cancelled request, which would look like that of an interrupt.
func (b *guardedBody) reason(err error) error {
	if err != nil && err != io.EOF && b.silent.Load() {
		return silenceError{}
	}
	return err
}
