//go:build api

package s3_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// ignore makes the proxy a server that does not know some conditions.
func (p *proxy) ignore(headers ...string) {
	p.set(func(w http.ResponseWriter, r *http.Request) bool {
		ignored := false
		for _, name := range headers {
			ignored = ignored || r.Header.Get(name) != ""
		}
		if !ignored || r.Method != http.MethodPut {
			return false
		}
		p.hits.Add(1)
		p.unconditional(w, r)
		return true
	})
}

// unconditional puts the body with a request of its own: the condition is signed and cannot be
// taken out of the one that came.
func (p *proxy) unconditional(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if _, err := p.client.PutObject(r.Context(), bucket, key, r.Body, r.ContentLength,
		minio.PutObjectOptions{}); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("ETag", `"unconditional"`)
}

// refuse makes the proxy a server that says that it does not know conditions.
func (p *proxy) refuse() {
	p.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("If-Match") == "" && r.Header.Get("If-None-Match") == "" {
			return false
		}
		p.hits.Add(1)
		w.WriteHeader(http.StatusNotImplemented)
		_, _ = w.Write([]byte("<Error><Code>NotImplemented</Code><Message>A header you provided " +
			"implies functionality that is not implemented</Message></Error>"))
		return true
	})
}

// conditionalRecord returns what the bucket says of its server.
func (p *proxy) conditionalRecord(t *testing.T, bucket string) string {
	t.Helper()
	return string(getObject(t, p.client, bucket, "p/conditional.json"))
}

func getObject(t *testing.T, c *minio.Client, bucket, key string) []byte {
	t.Helper()
	object, err := c.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	data, err := io.ReadAll(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const recordYes, recordNo = `{"format":1,"conditional":"yes"}` + "\n",
	`{"format":1,"conditional":"no"}` + "\n"

// TestAPIS3WithoutConditionsCannotFence: a server that ignores or refuses conditions is recorded
// as such. Its keys are written once all the same.
func TestAPIS3WithoutConditionsCannotFence(t *testing.T) {
	onEach(t, s3test.Options{}, s3WithoutConditions)
}

func s3WithoutConditions(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	for name, begin := range map[string]func(){
		"ignores-both":          func() { p.ignore("If-Match", "If-None-Match") },
		"ignores-if-match":      func() { p.ignore("If-Match") },
		"ignores-if-none-match": func() { p.ignore("If-None-Match") },
		"refuses-both":          p.refuse,
	} {
		t.Run(name, func(t *testing.T) {
			p.set(nil)
			b, _ := p.bucket(t, name)
			begin()
			s, err := store.Open(t.Context(), store.Options{Bucket: b, Plain: true, Create: true})
			if err != nil {
				t.Fatal(err)
			}
			p.wantHits(t, 1)
			fence, ok := errors.AsType[*store.FenceError](s.CanFence(t.Context()))
			if !ok || !strings.Contains(fence.Hint(), "without fencing") {
				t.Errorf("CanFence: %v, want *FenceError", s.CanFence(t.Context()))
			}
			if _, err := b.PutIf(t.Context(), "owners/x.json", nil, ""); err == nil {
				t.Error("a conditional write was accepted")
			}
			if err := b.Put(t.Context(), "once", []byte("first")); err != nil {
				t.Fatal(err)
			}
			if err := b.Put(t.Context(), "once", []byte("second")); !errors.Is(err, bucket.ErrExists) {
				t.Errorf("second put: %v, want ErrExists", err)
			}
			if got, err := readAll(t, b, "once"); err != nil || string(got) != "first" {
				t.Errorf("get: %q, %v", got, err)
			}
			if got := p.conditionalRecord(t, name); got != recordNo {
				t.Errorf("record %s", got)
			}
			// Another process reads the record and does not try again.
			p.set(nil)
			again, _ := p.open(t, name)
			if _, err := again.PutIf(t.Context(), "owners/x.json", nil, ""); err == nil {
				t.Error("another process tried the server out again")
			}
			var keys []string
			if err := b.List(t.Context(), "", func(i bucket.Info) error {
				keys = append(keys, i.Key)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := []string{"mgmtd.json", "once"}; !slices.Equal(keys, want) {
				t.Errorf("keys %v, want %v", keys, want)
			}
		})
	}
}

// TestAPIS3ManyProbersAgree: many processes may probe at once what the server can do, and all find
// the same.
func TestAPIS3ManyProbersAgree(t *testing.T) { onEach(t, s3test.Options{}, s3ProbeRace) }

func s3ProbeRace(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	for name, c := range map[string]struct {
		begin func()
		want  string
	}{
		"race-yes":              {func() { p.set(nil) }, recordYes},
		"race-no":               {func() { p.ignore("If-Match", "If-None-Match") }, recordNo},
		"race-no-if-none-match": {func() { p.ignore("If-None-Match") }, recordNo},
	} {
		p.set(nil)
		p.bucket(t, name)
		c.begin()
		var wg sync.WaitGroup
		for i := range 8 {
			b, _ := p.open(t, name)
			wg.Go(func() {
				_, err := b.PutIf(t.Context(), fmt.Sprintf("owners/%d", i), nil, "")
				if (err == nil) != (c.want == recordYes) {
					t.Errorf("%s: put: %v", name, err)
				}
			})
		}
		wg.Wait()
		if got := p.conditionalRecord(t, name); got != c.want {
			t.Errorf("%s: record %s, want %s", name, got, c.want)
		}
	}
}

// TestAPII5S3ProbeMayDieAtEveryRequest: a process that probes a server may die at every request;
// the next one finds the right answer.
func TestAPII5S3ProbeMayDieAtEveryRequest(t *testing.T) {
	onEach(t, s3test.Options{}, s3ProbeDies)
}

func s3ProbeDies(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	for _, ignores := range []bool{false, true} {
		for step := range int32(6) {
			name := fmt.Sprintf("dies-%v-%d", ignores, step)
			p.set(nil)
			b, _ := p.bucket(t, name)
			left := step
			p.set(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "conditional.json") {
					return false
				}
				if left--; left < 0 {
					p.hits.Add(1)
					answer(w, r, http.StatusForbidden, "AccessDenied")
					return true
				}
				if ignores && r.Method == http.MethodPut && r.Header.Get("If-None-Match") != "" {
					p.unconditional(w, r)
					return true
				}
				return false
			})
			if _, err := b.PutIf(t.Context(), "owners/x", nil, ""); !errors.Is(err, bucket.ErrDenied) &&
				p.hits.Load() > 0 {
				t.Errorf("%s: %v, want ErrDenied", name, err)
			}
			p.set(nil)
			want := recordYes
			if ignores {
				p.ignore("If-None-Match")
				want = recordNo
			}
			next, _ := p.open(t, name)
			if _, err := next.PutIf(t.Context(), "owners/y", nil, ""); (err == nil) == ignores {
				t.Errorf("%s: the next one: %v", name, err)
			}
			if got := p.conditionalRecord(t, name); got != want {
				t.Errorf("%s: record %s, want %s", name, got, want)
			}
		}
	}
}
