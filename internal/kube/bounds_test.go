package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// hostile is a reader of an API server that answers with handler.
func hostile(t *testing.T, silence time.Duration, handler http.HandlerFunc) *Reader {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := newGuardedClient(&rest.Config{Host: server.URL},
		guard{silence: silence, most: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &Reader{client: client}
}

func ignore([]byte) error { return nil }

// TestAListOfAHostileServerEnds: no list takes the memory of a daemon that serves others, or never
// ends.
func TestAListOfAHostileServerEnds(t *testing.T) {
	const head = `{"metadata":{"resourceVersion":"1"%s},"items":[`
	for name, tt := range map[string]struct {
		options ListOptions
		answer  func(w io.Writer, n int)
	}{
		"an endless object": {ListOptions{}, func(w io.Writer, _ int) {
			fmt.Fprintf(w, head+`{"a":"`, "")
			for endless(w, strings.Repeat("x", 1<<20)) {
			}
		}},
		"an endless field of the list": {ListOptions{}, func(w io.Writer, _ int) {
			fmt.Fprint(w, `{"a":[0`)
			for endless(w, strings.Repeat(",0", 1<<19)) {
			}
		}},
		"endless objects in one answer": {ListOptions{Whole: true}, func(w io.Writer, _ int) {
			fmt.Fprintf(w, head+`{}`, "")
			for endless(w, strings.Repeat(",{}", 1<<18)) {
			}
		}},
		"the same page for ever": {ListOptions{}, func(w io.Writer, _ int) {
			fmt.Fprintf(w, head+`{}]}`, `,"continue":"x"`)
		}},
		"empty pages for ever": {ListOptions{}, func(w io.Writer, n int) {
			fmt.Fprintf(w, head+`]}`, fmt.Sprintf(`,"continue":"%d"`, n))
		}},
		"full pages for ever": {ListOptions{}, func(w io.Writer, n int) {
			fmt.Fprintf(w, head+`{}%s]}`, fmt.Sprintf(`,"continue":"%d"`, n),
				strings.Repeat(",{}", 50_000))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var answers atomic.Int32
			r := hostile(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				tt.answer(w, int(answers.Add(1)))
			})
			_, err := r.List(t.Context(), NamespaceKind, tt.options, ignore)
			if !errors.Is(err, ErrUnbounded) {
				t.Errorf("%v, want ErrUnbounded", err)
			}
		})
	}
}

// endless writes text once more and reports whether the client is still there.
func endless(w io.Writer, text string) bool {
	_, err := io.WriteString(w, text)
	return err == nil
}

// TestAWatchOfAHostileServerEnds: an event that does not end is no change.
func TestAWatchOfAHostileServerEnds(t *testing.T) {
	r := hostile(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"},"items":[]}`)
			return
		}
		fmt.Fprint(w, `{"type":"ADDED","object":{"a":"`)
		for endless(w, strings.Repeat("x", 1<<20)) {
		}
	})
	err := r.Changes(t.Context(), NamespaceKind, "1", "9", func(bool, []byte) error { return nil })
	if !errors.Is(err, ErrUnbounded) {
		t.Errorf("%v, want ErrUnbounded", err)
	}
}

// TestASilentServerIsGivenUp: before its answer and in the middle of it; that is no interrupt, and
// it is tried again.
func TestASilentServerIsGivenUp(t *testing.T) {
	for name, begin := range map[string]string{"no answer": "", "half an answer": `{"items":[`} {
		t.Run(name, func(t *testing.T) {
			end := make(chan struct{})
			var requests atomic.Int32
			r := hostile(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1); begin != "" {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				select {
				case <-end:
				case <-r.Context().Done():
				}
			})
			t.Cleanup(func() { close(end) })
			_, err := r.List(t.Context(), NamespaceKind, ListOptions{}, ignore)
			if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(),
				"sends nothing") || requests.Load() < 2 {
				t.Errorf("%v after %d requests, want silence and more than one", err, requests.Load())
			}
		})
	}
}

// TestAnAnswerThatIsReadWholeHasABound: discovery and single objects are in memory at once.
func TestAnAnswerThatIsReadWholeHasABound(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		r := hostile(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, `{"a":"`)
			for endless(w, strings.Repeat("x", 1<<16)) {
			}
		})
		var into map[string]any
		if err := getJSON(t.Context(), r.client, "/version", &into); err == nil {
			t.Errorf("status %d: an endless answer was read", status)
		}
		if status != http.StatusOK {
			if _, err := r.List(t.Context(), NamespaceKind, ListOptions{}, ignore); err == nil {
				t.Errorf("status %d: an endless answer was read", status)
			}
		}
	}
}

// TestAReadThatCannotConvertQuotesNoValue: neither a list nor a watch passes on what a conversion
// webhook says, which may quote an object. Who it is, and what kind of error, stays.
func TestAReadThatCannotConvertQuotesNoValue(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400,` +
		`"message":"conversion webhook for example.org/v1, Kind=Thing failed: hunter2"}`
	r := hostile(t, time.Minute, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch query := req.URL.Query(); {
		case query.Get("watch") != "":
			fmt.Fprintf(w, `{"type":"ERROR","object":%s}`, status)
		case query.Get("limit") == "1":
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"},"items":[]}`)
		default:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, status)
		}
	})
	_, list := r.List(t.Context(), ConfigMapKind, ListOptions{}, ignore)
	watch := r.Changes(t.Context(), ConfigMapKind, "1", "5", func(bool, []byte) error { return nil })
	for what, err := range map[string]error{"list": list, "watch": watch} {
		if err == nil || strings.Contains(err.Error(), "hunter2") || !apierrors.IsBadRequest(err) ||
			!strings.Contains(err.Error(), "conversion webhook for example.org/v1, Kind=Thing") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
