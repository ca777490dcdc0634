//go:build api

package retention

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
	"github.com/mgmtd/mgmtd/internal/task"
)

// oneByOne is a bucket that deletes each key by itself.
type oneByOne struct{ bucket.Bucket }

func (b oneByOne) Delete(ctx context.Context, key string) error {
	return b.Bucket.(bucket.Remover).Delete(ctx, key)
}

// distance is how much longer each request takes than on the loopback, as to a bucket elsewhere.
const distance = 20 * time.Millisecond

// distant returns the address of a server that is far away.
func distant(b *testing.B, endpoint string) string {
	target, err := url.Parse(endpoint)
	if err != nil {
		b.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which is signed
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(distance)
		proxy.ServeHTTP(w, r)
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// BenchmarkPruneOfS3 removes 2,000 packs that no snapshot names.
func BenchmarkPruneOfS3(b *testing.B) {
	for _, versions := range []bool{false, true} {
		for _, batches := range []bool{false, true} {
			b.Run(fmt.Sprintf("versions=%t/batches=%t", versions, batches), func(b *testing.B) {
				benchmarkPrune(b, versions, batches)
			})
		}
	}
}

func benchmarkPrune(b *testing.B, versions, batches bool) {
	const packs = 2000
	server := s3test.Start(b, s3test.Options{Kind: s3test.MinIO})
	create := server.NewBucket
	if versions {
		create = server.NewVersionedBucket
	}
	create(b, "prune")
	on, err := s3.New(s3.Options{Bucket: "prune", Endpoint: distant(b, server.Endpoint),
		CredentialsFile: server.CredentialsFile})
	if err != nil {
		b.Fatal(err)
	}
	var pruned bucket.Bucket = dayOld{on}
	if !batches {
		pruned = oneByOne{pruned}
	}
	st, err := store.Open(b.Context(), store.Options{Bucket: pruned, Plain: true, Create: true})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		var g task.Group
		g.SetLimit(16)
		for i := range packs {
			g.Go(func() error {
				sum := sha256.Sum256(fmt.Append(nil, i))
				hash := hex.EncodeToString(sum[:])
				return on.Put(b.Context(), "packs/"+hash[:2]+"/"+hash+".tar.zst", make([]byte, 4096))
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		r, err := prune(b.Context(), Options{Store: st})
		if err != nil || r.Freed.Keys != packs {
			b.Fatalf("freed %+v, %v", r, err)
		}
	}
}
