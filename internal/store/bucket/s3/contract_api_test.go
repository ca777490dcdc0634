//go:build api

package s3_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/buckettest"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

func newS3(t *testing.T, o s3.Options) *s3.Bucket {
	t.Helper()
	b, err := s3.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.HurryRetries(5*time.Second, 10*time.Second)
	return b
}

var buckets atomic.Int32

// newBucket makes an S3 bucket on a server; odd ones are used below a prefix.
func newBucket(t *testing.T, s *s3test.Server, create func(t testing.TB, name string)) *s3.Bucket {
	t.Helper()
	n := buckets.Add(1)
	name, prefix := fmt.Sprintf("bucket-%d", n), ""
	if n%2 == 1 {
		prefix = "some/prefix"
	}
	create(t, name)
	return newS3(t, s3.Options{Bucket: name, Prefix: prefix, Endpoint: s.Endpoint,
		CAFile: s.CAFile, CredentialsFile: s.CredentialsFile})
}

// onEach runs a test with each kind of server.
func onEach(t *testing.T, o s3test.Options, run func(t *testing.T, s *s3test.Server)) {
	for _, o.Kind = range s3test.Kinds {
		t.Run(string(o.Kind), func(t *testing.T) { run(t, s3test.Start(t, o)) })
	}
}

// contract runs what every bucket has to do, with buckets that create makes.
func contract(t *testing.T, s *s3test.Server, create func(t testing.TB, name string)) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return newBucket(t, s, create) })
	buckettest.RunConditional(t, func(t *testing.T) buckettest.ConditionalBucket {
		return newBucket(t,
			s, create)
	})
	buckettest.RunRemover(t, func(t *testing.T) buckettest.RemoverBucket {
		return newBucket(t, s,
			create)
	})
	buckettest.RunBatchRemover(t, func(t *testing.T) buckettest.BatchBucket {
		return newBucket(t, s, create)
	})
}

func TestAPIS3FulfilsTheContract(t *testing.T) {
	onEach(t, s3test.Options{}, func(t *testing.T, s *s3test.Server) { contract(t, s, s.NewBucket) })
	t.Run("TLS", func(t *testing.T) {
		onEach(t, s3test.Options{TLS: true}, func(t *testing.T, s *s3test.Server) {
			contract(t, s,
				s.NewBucket)
		})
	})
	t.Run("versions", func(t *testing.T) {
		onEach(t, s3test.Options{Versions: true}, func(t *testing.T, s *s3test.Server) {
			contract(t, s,
				s.NewVersionedBucket)
		})
	})
	t.Run("Object Lock", func(t *testing.T) {
		onEach(t, s3test.Options{Versions: true}, func(t *testing.T, s *s3test.Server) {
			open := func(t *testing.T) *s3.Bucket { return newLocked(t, s, s3.LockCompliance) }
			buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t) })
			buckettest.RunConditional(t, func(t *testing.T) buckettest.ConditionalBucket { return open(t) })
		})
	})
}

// newLocked makes a bucket with Object Lock in which what is written is retained for a day, or
// more.
func newLocked(t *testing.T, s *s3test.Server, mode s3.LockMode) *s3.Bucket {
	t.Helper()
	name := fmt.Sprintf("locked-%d", buckets.Add(1))
	s.NewLockedBucket(t, name)
	return openLocked(t, s, name, mode, 1)
}

func openLocked(t *testing.T, s *s3test.Server, name string, mode s3.LockMode,
	days int) *s3.Bucket {
	t.Helper()
	return newS3(t, s3.Options{
		Bucket: name, Prefix: "p", Endpoint: s.Endpoint, CAFile: s.CAFile,
		CredentialsFile: s.CredentialsFile, ObjectLock: mode, RetentionDays: days,
	})
}
