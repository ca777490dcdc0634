//go:build api

package s3_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// proxy stands before a real S3 server and does what that one cannot be made to do.
type proxy struct {
	*httptest.Server
	server *s3test.Server
	client *minio.Client // of the server, past the proxy
	next   http.Handler

	mu   sync.Mutex
	hook func(w http.ResponseWriter, r *http.Request) (handled bool)
	hits atomic.Int32 // requests that met a fault
	all  atomic.Int32
}

func newProxy(t *testing.T, server *s3test.Server) *proxy {
	t.Helper()
	target, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{server: server, client: server.Client(t),
		next: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // which is signed
		}}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.all.Add(1)
		p.mu.Lock()
		hook := p.hook
		p.mu.Unlock()
		if hook != nil && hook(w, r) {
			return
		}
		p.next.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// set begins a fault; nil ends it.
func (p *proxy) set(hook func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
	p.hits.Store(0)
}

// record lets the server answer, and withholds the answer.
func (p *proxy) record(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	p.next.ServeHTTP(rec, r)
	return rec
}

// open opens a bucket through the proxy; direct is the same one without it.
func (p *proxy) open(t *testing.T, name string) (b, direct *s3.Bucket) {
	t.Helper()
	o := s3.Options{Bucket: name, Prefix: "p", Endpoint: p.URL,
		CredentialsFile: p.server.CredentialsFile}
	b = newS3(t, o)
	o.Endpoint = p.server.Endpoint
	return b, newS3(t, o)
}

func (p *proxy) bucket(t *testing.T, name string) (b, direct *s3.Bucket) {
	t.Helper()
	p.server.NewBucket(t, name)
	return p.open(t, name)
}

// wantHits fails when a fault was not met as often as it has to be.
func (p *proxy) wantHits(t *testing.T, n int32) {
	t.Helper()
	if got := p.hits.Load(); got < n {
		t.Errorf("the fault was met %d times, want %d", got, n)
	}
}

func abort() { panic(http.ErrAbortHandler) }

// first runs a fault for the first n requests of a method to a key.
func (p *proxy) first(n int32, method, key string, fault func(w http.ResponseWriter,
	r *http.Request)) {
	var left atomic.Int32
	left.Store(n)
	p.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.HasSuffix(r.URL.Path, key) || left.Add(-1) < 0 {
			return false
		}
		p.hits.Add(1)
		fault(w, r)
		return true
	})
}

func readAll(t *testing.T, b bucket.Bucket, key string) ([]byte, error) {
	t.Helper()
	r, err := b.Get(t.Context(), key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestAPIS3RetriesWhatMaySucceed(t *testing.T) { onEach(t, s3test.Options{}, s3Retries) }

func s3Retries(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	b, direct := p.bucket(t, "retries")
	slow := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>"+p.server.AccessKey+
			"</Message></Error>")
	}
	reset := func(http.ResponseWriter, *http.Request) { abort() }
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request){"slow-down": slow,
		"reset": reset} {
		data := []byte("data of " + name)
		p.first(3, http.MethodPut, name, fault)
		if err := b.Put(t.Context(), name, data); err != nil {
			t.Errorf("put after 3 × %s: %v", name, err)
		}
		p.first(3, http.MethodGet, name, fault)
		if got, err := readAll(t, b, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("get after 3 × %s: %q, %v", name, got, err)
		}
		p.first(3, http.MethodHead, name, fault)
		if _, err := b.Stat(t.Context(), name); err != nil {
			t.Errorf("stat after 3 × %s: %v", name, err)
		}
		p.first(3, http.MethodGet, "retries/", fault)
		n := 0
		if err := b.List(t.Context(), "", func(bucket.Info) error { n++; return nil }); err != nil ||
			n == 0 {
			t.Errorf("list after 3 × %s: %d keys, %v", name, n, err)
		}
	}
	p.first(1<<30, http.MethodPut, "never", slow)
	b.HurryRetries(2*time.Second, time.Second)
	err := b.Put(t.Context(), "never", []byte("x"))
	if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(hintOf(err), "check its log") {
		t.Errorf("put to a server that is always busy: %v", err)
	}
	wantNoSecret(t, err)
	p.wantHits(t, 4)
	if _, err := direct.Stat(t.Context(), "never"); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("after that: %v, want ErrNotFound", err)
	}
}

// cut answers with at most n bytes of the body, and then breaks the connection; or holds it, until
// the client goes.
func (p *proxy) cut(n int, hold bool) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := p.record(r)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		body := rec.Body.Bytes()
		_, _ = w.Write(body[:min(n, len(body)/2)])
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if hold {
			<-r.Context().Done()
		}
		abort()
	}
}

func TestAPIS3ReadsGoOnAfterABrokenConnection(t *testing.T) {
	onEach(t, s3test.Options{},
		s3BrokenReads)
}

func s3BrokenReads(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	b, direct := p.bucket(t, "broken")
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	if err := direct.Put(t.Context(), "key", data); err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(w http.ResponseWriter, r *http.Request){
		"cut":          p.cut(500_000, false),
		"cut at once":  p.cut(0, false),
		"cut and hold": p.cut(500_000, true),
		"no ranges": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "" {
				p.cut(500_000, false)(w, r)
			}
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = w.Write(data)
		},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			b.HurryRetries(5*time.Second, 300*time.Millisecond)
			p.first(3, http.MethodGet, "key", fault)
			got, err := readAll(t, b, "key")
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d of %d bytes, equal %v, %v", len(got), len(data), bytes.Equal(got, data), err)
			}
			p.wantHits(t, 2)
		})
	}
	t.Run("for ever", func(t *testing.T) {
		b.HurryRetries(200*time.Millisecond, time.Second)
		p.set(func(w http.ResponseWriter, r *http.Request) bool {
			p.hits.Add(1)
			from, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
			begin, _ := strconv.Atoi(from)
			p.cut(max(0, 1_000_000-begin), false)(w, r)
			return true
		})
		got, err := readAll(t, b, "key")
		if !errors.Is(err, bucket.ErrUnreachable) ||
			!strings.Contains(err.Error(), "1000000 of 3145728") {
			t.Errorf("%d bytes, %v, want ErrUnreachable", len(got), err)
		}
		p.wantHits(t, 3)
	})
	t.Run("replaced meanwhile", func(t *testing.T) {
		if _, err := direct.PutIf(t.Context(), "changing", data[:1<<20], ""); err != nil {
			t.Fatal(err)
		}
		p.first(1, http.MethodGet, "changing", func(w http.ResponseWriter, r *http.Request) {
			_, tag, err := direct.GetTagged(t.Context(), "changing")
			if err == nil {
				defer func() { _, err = direct.PutIf(t.Context(), "changing", data[1<<20:2<<20], tag) }()
			}
			p.cut(100_000, false)(w, r)
		})
		if got, err := readAll(t, b, "changing"); !errors.Is(err, bucket.ErrConflict) {
			t.Errorf("%d bytes, %v, want ErrConflict", len(got), err)
		}
	})
}

// TestAPII5S3LostResponseIsReadBack: when a response is lost, what we wrote counts as written, and
// what another process wrote does not.
func TestAPII5S3LostResponseIsReadBack(t *testing.T) { onEach(t, s3test.Options{}, s3LostAnswers) }

func s3LostAnswers(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	b, direct := p.bucket(t, "lost")
	lose := func(_ http.ResponseWriter, r *http.Request) {
		if rec := p.record(r); rec.Code != http.StatusOK {
			t.Errorf("the request whose answer gets lost: %d", rec.Code)
		}
		abort()
	}
	p.first(1, http.MethodPut, "put", lose)
	if err := b.Put(t.Context(), "put", []byte("ours")); err != nil {
		t.Errorf("put: %v", err)
	}
	large := make([]byte, 8<<20)
	_, _ = rand.Read(large)
	p.first(1, http.MethodPut, "large", lose)
	if err := b.Put(t.Context(), "large", large); err != nil {
		t.Errorf("put large: %v", err)
	}
	p.first(1, http.MethodPut, "owner", lose)
	tag, err := b.PutIf(t.Context(), "owner", []byte("one"), "")
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	p.first(1, http.MethodPut, "owner", lose)
	if tag, err = b.PutIf(t.Context(), "owner", []byte("two"), tag); err != nil {
		t.Fatalf("replace: %v", err)
	}
	if data, there, err := direct.GetTagged(t.Context(), "owner"); err != nil ||
		string(data) != "two" || there != tag {
		t.Errorf("there is %q, %v, tag %q, want %q", data, err, there, tag)
	}
	steal := func(key, tag string) func(http.ResponseWriter, *http.Request) {
		return func(http.ResponseWriter, *http.Request) {
			if _, err := direct.PutIf(t.Context(), key, []byte("theirs"), tag); err != nil {
				t.Errorf("steal: %v", err)
			}
			abort()
		}
	}
	p.first(1, http.MethodPut, "owner", steal("owner", tag))
	if _, err := b.PutIf(t.Context(), "owner", []byte("three"), tag); !errors.Is(err,
		bucket.ErrConflict) {
		t.Errorf("replace what another one replaced: %v, want ErrConflict", err)
	}
	for key, ours := range map[string]string{"shorter": "ours", "longer": "more than theirs"} {
		p.first(1, http.MethodPut, key, steal(key, ""))
		if err := b.Put(t.Context(), key, []byte(ours)); !errors.Is(err, bucket.ErrExists) {
			t.Errorf("put what another one put: %v, want ErrExists", err)
		}
	}
	p.wantHits(t, 0)
}
