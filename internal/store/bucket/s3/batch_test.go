package s3_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// deletions is a server that deletes: batches as the test says, and single keys always.
type deletions struct {
	mu      sync.Mutex
	batches [][]string // the keys of each DeleteObjects
	single  []string
	headers []http.Header
	// batch answers a DeleteObjects.
	batch func(w http.ResponseWriter, r *http.Request, keys []string)
}

func (d *deletions) open(t *testing.T) *s3.Bucket {
	t.Helper()
	return fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case r.URL.Query().Has("versioning"):
			_, _ = io.WriteString(w, "<VersioningConfiguration/>")
		case r.URL.Query().Has("delete"):
			var request struct {
				Object []struct{ Key string }
			}
			if err := xml.NewDecoder(r.Body).Decode(&request); err != nil {
				t.Error(err)
			}
			var keys []string
			for _, o := range request.Object {
				keys = append(keys, o.Key)
			}
			d.batches, d.headers = append(d.batches, keys), append(d.headers, r.Header.Clone())
			d.batch(w, r, keys)
		case r.Method == http.MethodDelete:
			d.single = append(d.single, strings.TrimPrefix(r.URL.Path, "/bucket/"))
			w.WriteHeader(http.StatusNoContent)
		default:
			t.Errorf("%s %s", r.Method, r.URL)
		}
	})
}

// results answers a DeleteObjects: with the code of a key, or that it is deleted; "-" leaves a key
// out.
func results(w io.Writer, keys []string, codes map[string]string) {
	var text strings.Builder
	for _, key := range keys {
		switch code := codes[key]; code {
		case "":
			fmt.Fprintf(&text, "<Deleted><Key>%s</Key></Deleted>", key)
		case "-":
		default:
			fmt.Fprintf(&text, "<Error><Key>%s</Key><Code>%s</Code><Message>no</Message></Error>", key,
				code)
		}
	}
	fmt.Fprintf(w, "<DeleteResult>%s</DeleteResult>", text.String())
}

// TestABatchHasAnOutcomeForEachKey: and what the server was too busy for is asked for again, alone.
func TestABatchHasAnOutcomeForEachKey(t *testing.T) {
	d := &deletions{}
	busy := 2
	d.batch = func(w http.ResponseWriter, _ *http.Request, keys []string) {
		codes := map[string]string{"k/denied": "AccessDenied", "k/left-out": "-",
			"k/argument": "InvalidArgument", "k/none": "NoSuchKey"}
		if busy--; busy >= 0 {
			codes["k/busy"] = "SlowDown"
		}
		results(w, keys, codes)
	}
	b := d.open(t)
	failed := b.DeleteBatch(t.Context(), []string{"k/a", "k/denied", "k/left-out", "k/busy", "k/b",
		"k/argument", "k/none", "../up"})
	for key, class := range map[string]error{"k/denied": bucket.ErrDenied,
		"k/left-out": bucket.ErrUnbatched, "k/argument": bucket.ErrUnbatched,
		"../up": bucket.ErrInvalidKey} {
		if !errors.Is(failed[key], class) {
			t.Errorf("%s: %v, want %v", key, failed[key], class)
		}
		delete(failed, key)
	}
	if len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
	want := [][]string{{"k/a", "k/denied", "k/left-out", "k/busy", "k/b", "k/argument", "k/none"},
		{"k/busy"}, {"k/busy"}}
	if diff := cmp.Diff(want, d.batches); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for _, name := range []string{"Content-Md5", "X-Amz-Content-Sha256"} {
		if sum := d.headers[0].Get(name); len(sum) < 24 {
			t.Errorf("%s: %q", name, sum)
		}
	}
	if b.BatchSize() < 2 {
		t.Error("it deletes one key at a time from now on")
	}
}

// TestAServerWithoutBatchesIsAskedOnce: it answers that it does not know the request, or answers
// something else. Then each key is deleted alone. Who may not, or cannot at the moment, delete many
// keys at once may later.
func TestAServerWithoutBatchesIsAskedOnce(t *testing.T) {
	fail := func(status int, code string) func(http.ResponseWriter, *http.Request, []string) {
		return func(w http.ResponseWriter, r *http.Request, _ []string) { answer(w, r, status, code) }
	}
	for name, tt := range map[string]struct {
		batch func(http.ResponseWriter, *http.Request, []string)
		size1 bool
	}{
		"not implemented": {fail(http.StatusNotImplemented, "NotImplemented"), true},
		"not allowed":     {fail(http.StatusMethodNotAllowed, "MethodNotAllowed"), true},
		"not found":       {fail(http.StatusNotFound, "NoSuchKey"), true},
		"another answer": {func(w http.ResponseWriter, _ *http.Request, _ []string) {
			_, _ = io.WriteString(w, "<html>hello</html>")
		}, true},
		"no answer": {func(http.ResponseWriter, *http.Request, []string) {}, true},
		"denied":    {fail(http.StatusForbidden, "AccessDenied"), false},
		"broken":    {fail(http.StatusInternalServerError, "InternalError"), false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &deletions{batch: tt.batch}
			b := d.open(t)
			keys := []string{"k/a", "k/b"}
			failed := b.DeleteBatch(t.Context(), keys)
			for _, key := range keys {
				if !errors.Is(failed[key], bucket.ErrUnbatched) {
					t.Errorf("%s: %v, want ErrUnbatched", key, failed[key])
				}
			}
			if size1 := b.BatchSize() == 1; size1 != tt.size1 {
				t.Errorf("size of a batch after that: %d", b.BatchSize())
			}
			if err := b.Delete(t.Context(), "k/a"); err != nil || len(d.single) != 1 {
				t.Errorf("delete: %v, %v", err, d.single)
			}
		})
	}
}

// TestABatchEndsWithItsContext: with that as the error of each key.
func TestABatchEndsWithItsContext(t *testing.T) {
	d := &deletions{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.batch = func(w http.ResponseWriter, r *http.Request, _ []string) {
		cancel()
		answer(w, r, http.StatusServiceUnavailable, "SlowDown")
	}
	b := d.open(t)
	failed := b.DeleteBatch(ctx, []string{"k/a", "k/b"})
	for _, key := range []string{"k/a", "k/b"} {
		if err := failed[key]; !errors.Is(err, ctx.Err()) || errors.Is(err, bucket.ErrUnbatched) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if b.BatchSize() == 1 {
		t.Error("it deletes one key at a time from now on")
	}
}
