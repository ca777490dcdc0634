//go:build api

package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/snapshot/store"
	"github.com/mgmtd/mgmtd/internal/snapshot/store/buckettest"
	"github.com/mgmtd/mgmtd/internal/snapshot/store/s3test"
)

func newS3(t *testing.T, o store.S3Options) *store.S3 {
	t.Helper()
	b, err := store.NewS3(o)
	if err != nil {
		t.Fatal(err)
	}
	b.HurryRetries(5*time.Second, 10*time.Second)
	return b
}

var buckets atomic.Int32

// newBucket makes an S3 bucket on a server; odd ones are used below a prefix.
func newBucket(t *testing.T, s *s3test.Server) *store.S3 {
	t.Helper()
	n := buckets.Add(1)
	name, prefix := fmt.Sprintf("bucket-%d", n), ""
	if n%2 == 1 {
		prefix = "some/prefix"
	}
	s.NewBucket(t, name)
	return newS3(t, store.S3Options{Bucket: name, Prefix: prefix, Endpoint: s.Endpoint, CAFile: s.CAFile, CredentialsFile: s.CredentialsFile})
}

func TestAPIS3Contract(t *testing.T) {
	for name, o := range map[string]s3test.Options{"http": {}, "TLS": {TLS: true}} {
		t.Run(name, func(t *testing.T) {
			s := s3test.Start(t, o)
			buckettest.Run(t, func(t *testing.T) store.Bucket { return newBucket(t, s) })
			buckettest.RunConditional(t, func(t *testing.T) buckettest.ConditionalBucket { return newBucket(t, s) })
		})
	}
}
