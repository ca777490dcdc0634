package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestALostConnectionIsTransient: so is every other way not to answer, and what a server answers
// that is busy.
func TestALostConnectionIsTransient(t *testing.T) {
	body := func(err error) error {
		return fmt.Errorf("unexpected error when reading response body. Please retry. "+
			"Original error: %w", err)
	}
	for _, tt := range []struct {
		err               error
		again, unanswered bool
	}{
		{nil, false, false},
		{body(errors.New("http2: client connection lost")), true, true},
		{body(io.ErrUnexpectedEOF), true, true},
		{&url.Error{Op: "Get", URL: "https://h", Err: errors.New(
			"http2: server sent GOAWAY and closed the connection; LastStreamID=1")}, true, true},
		{&url.Error{Op: "Get", URL: "https://h", Err: io.EOF}, true, true},
		{body(errors.New("stream error: stream ID 3; INTERNAL_ERROR; received from peer")), true, true},
		{&url.Error{Op: "Get", URL: "https://h", Err: &net.OpError{Op: "dial",
			Err: context.DeadlineExceeded}}, true, true},
		{&url.Error{Op: "Get", URL: "https://h", Err: context.DeadlineExceeded}, false, false},
		{apierrors.NewTooManyRequests("busy", 1), true, false},
		{apierrors.NewInternalError(errors.New("connection reset by peer")), true, false},
		{apierrors.NewBadRequest("webhook: connection reset by peer"), false, false},
		{errors.New("x509: unknown authority"), false, false},
	} {
		if again, unanswered := Transient(tt.err), Unanswered(tt.err); again != tt.again ||
			unanswered != tt.unanswered {
			t.Errorf("%v: transient %v, unanswered %v", tt.err, again, unanswered)
		}
	}
}

// TestAnAnswerThatBreaksOffIsAskedForAgain, but once.
func TestAnAnswerThatBreaksOffIsAskedForAgain(t *testing.T) {
	for _, breaks := range []int32{1, 2} {
		var asked atomic.Int32
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			if asked.Add(1) <= breaks {
				_, _ = io.WriteString(w, text[:9])
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, text)
		}))
		server.EnableHTTP2 = true // as API servers have it
		server.StartTLS()
		t.Cleanup(server.Close)
		config := &rest.Config{Host: server.URL}
		config.Insecure = true
		client, err := newRESTClient(config)
		if err != nil {
			t.Fatal(err)
		}
		u, err := (&Reader{client: client}).Get(t.Context(), NamespaceKind, "", "a")
		if (err == nil) != (breaks == 1) || err == nil && u.GetName() != "a" || asked.Load() != 2 {
			t.Errorf("%d answers break off: got %v, %v after %d requests", breaks, u, err, asked.Load())
		}
	}
}

// TestAKindThatMayNotBeWatchedIsListed: who may list a kind and not watch it reads it by other
// means.
func TestAKindThatMayNotBeWatchedIsListed(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusBadRequest} {
		reader := hostile(t, time.Second, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Query().Has("watch") {
				w.WriteHeader(code)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`,
					code, map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden,
						405: metav1.StatusReasonMethodNotAllowed, 400: metav1.StatusReasonBadRequest}[code])
				return
			}
			_, _ = io.WriteString(w, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{
				"resourceVersion":"9"},"items":[]}`)
		})
		err := reader.Changes(t.Context(), NamespaceKind, "1", "9",
			func(bool, []byte) error { return nil })
		if want := code != http.StatusBadRequest; errors.Is(err, ErrUnproven) != want {
			t.Errorf("%d: %v", code, err)
		}
	}
}
