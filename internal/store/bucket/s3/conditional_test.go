package s3_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// unconditionalS3 is a bucket on a server that ignores conditions, with a record of them that
// somebody wrote.
func unconditionalS3(t *testing.T, record string) *s3.Bucket {
	t.Helper()
	var mu sync.Mutex
	keys := map[string]string{"conditional.json": record}
	return fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := strings.TrimPrefix(r.URL.Path, "/bucket/")
		data, ok := keys[key]
		w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
		switch {
		case r.Method == http.MethodPut:
			body, _ := io.ReadAll(r.Body)
			keys[key] = string(body)
		case !ok && r.Method == http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
		case !ok:
			answer(w, r, http.StatusNotFound, "NoSuchKey")
		default:
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
			_, _ = io.WriteString(w, data)
		}
	})
}

// TestARecordThatSomebodyWroteDoesNotMakeAFence: the server ignores conditions, and "yes" in the
// record does not change that.
func TestARecordThatSomebodyWroteDoesNotMakeAFence(t *testing.T) {
	b := unconditionalS3(t, `{"format":1,"conditional":"yes"}`)
	for range 2 {
		_, err := b.PutIf(t.Context(), "owners/x.json", []byte("{}"), "")
		if !errors.Is(err, bucket.ErrUnconditional) {
			t.Errorf("a write on a condition: %v, want ErrUnconditional", err)
		}
	}
	if honoured, err := b.SupportsConditionalWrites(t.Context()); err != nil || honoured {
		t.Errorf("conditions are honoured: %v, %v", honoured, err)
	}
}

// TestJunkInTheRecordStopsNoWrites but those that need conditions.
func TestJunkInTheRecordStopsNoWrites(t *testing.T) {
	for _, junk := range []string{"junk", `{"format":2}`} {
		b := unconditionalS3(t, junk)
		if err := b.Put(t.Context(), "packs/x", []byte("content")); err != nil {
			t.Errorf("put: %v", err)
		}
		if err := b.Put(t.Context(), "packs/x", []byte("other")); !errors.Is(err, bucket.ErrExists) {
			t.Errorf("second put: %v, want ErrExists", err)
		}
		if _, err := b.PutIf(t.Context(), "owners/x.json", []byte("{}"), ""); err == nil {
			t.Error("it fences by a record that cannot be read")
		}
	}
}
