//go:build api

package snapshot_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// counted counts the requests to an S3 server by what they do.
type counted struct {
	*httptest.Server
	mu                  sync.Mutex
	puts, heads, retain int
}

func newCounted(t *testing.T, s *s3test.Server) *counted {
	t.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which is signed
	}}
	c := &counted{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		switch {
		case r.Method == http.MethodPut && r.URL.Query().Has("retention"):
			c.retain++
		case r.Method == http.MethodPut:
			c.puts++
		case r.Method == http.MethodHead:
			c.heads++
		}
		c.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *counted) reset() (puts, heads, retain int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	puts, heads, retain = c.puts, c.heads, c.retain
	c.puts, c.heads, c.retain = 0, 0, 0
	return puts, heads, retain
}

// locked takes snapshots into a bucket with Object Lock.
type locked struct {
	*chainFixture
	client *minio.Client
	bucket string
}

// wantRetained fails unless the storage retains the envelope for days, and all that it names for as
// long.
func (l *locked) wantRetained(e store.Signed, days int) {
	l.t.Helper()
	until := func(key string) time.Time {
		info, err := l.client.StatObject(l.t.Context(), l.bucket, key, minio.StatObjectOptions{})
		if err != nil {
			l.t.Fatalf("%s: %v", key, err)
		}
		at, err := time.Parse(time.RFC3339, info.Metadata.Get("X-Amz-Object-Lock-Retain-Until-Date"))
		if err != nil {
			l.t.Fatalf("%s is not retained: %v", key, info.Metadata)
		}
		return at
	}
	envelope := until(e.Key().String())
	if left := time.Until(envelope); left < time.Duration(days)*24*time.Hour-time.Minute {
		l.t.Errorf("the envelope is retained for %s", left)
	}
	tree, err := l.st.GetTree(l.t.Context(), e.Tree)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, key := range append(append([]store.Key{"mgmtd.json", e.Tree}, tree.Shards...),
		tree.Packs...) {
		if at := until(string(key)); at.Before(envelope) {
			l.t.Errorf("%s is retained until %s, the envelope until %s", key, at, envelope)
		}
	}
}

// TestAPIReusedStaysRetained: what a snapshot uses again is retained for as long as its envelope,
// with few requests; and what was taken away is written again.
func TestAPIReusedStaysRetained(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "retained-", "--workloads", "6", "--machines", "3",
		"--fast")
	for _, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			server := s3test.Start(t, s3test.Options{Kind: kind, Versions: true})
			server.NewLockedBucket(t, "locked")
			proxy := newCounted(t, server)
			keys := newKeysIn(t, t.TempDir())
			m := servers.Connect(t, 0)
			l := &locked{chainFixture: &chainFixture{t: t, m: m, source: &hooked{Source: m.Reader()}},
				client: server.Client(t), bucket: "locked"}
			open := func(days int) {
				t.Helper()
				b, err := s3.New(s3.Options{
					Bucket: "locked", Endpoint: proxy.URL, CredentialsFile: server.CredentialsFile,
					ObjectLock: s3.LockCompliance, RetentionDays: days,
				})
				if err == nil {
					l.st, err = store.Open(t.Context(), store.Options{Bucket: b, Keys: keys, Create: true})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			take := func(days int) *snapshot.Result {
				t.Helper()
				taken, err := snapshot.Create(t.Context(), l.options())
				if err != nil || taken.NotRemembered != nil {
					t.Fatal(err, taken)
				}
				l.wantRetained(taken.Signed, days)
				return taken
			}
			open(1)
			l.newCatalog()
			first := take(1)
			proxy.reset()
			unchanged := func(days, most, retained int) {
				t.Helper()
				taken, err := snapshot.Create(t.Context(), l.options())
				if err != nil {
					t.Fatal(err)
				}
				puts, heads, retain := proxy.reset()
				if taken.Tree != first.Tree || puts != 1 || heads > most || retain < retained ||
					retained == 0 && retain > 0 {
					t.Errorf("a snapshot of what did not change: tree %v, %d writes, %d heads, retained %d",
						taken.Tree == first.Tree, puts, heads, retain)
				}
				l.wantRetained(taken.Signed, days)
				proxy.reset()
			}
			unchanged(1, 3, 0) // heads: tree twice, mgmtd.json
			open(10)
			unchanged(10, 100, 8)
			unchanged(10, 3, 0)
			// A deletion hides what a snapshot uses again, and the next one does without.
			if err := l.client.RemoveObject(t.Context(), "locked", string(first.Tree),
				minio.RemoveObjectOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := snapshot.Open(t.Context(), l.st, first.Envelope, nil); err != nil {
				t.Errorf("the snapshot whose tree was deleted: %v", err)
			}
			if next := take(10); next.Tree == first.Tree || next.Wrote < next.Bytes {
				t.Errorf("after that: tree %s, wrote %d of %d bytes", next.Tree, next.Wrote, next.Bytes)
			}
		})
	}
}
