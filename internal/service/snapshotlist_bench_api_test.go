//go:build api

package service

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// BenchmarkListSnapshotsS3 is BenchmarkListSnapshots over real S3 servers.
func BenchmarkListSnapshotsS3(b *testing.B) {
	for _, kind := range s3test.Kinds {
		b.Run(string(kind), func(b *testing.B) {
			server := s3test.Start(b, s3test.Options{Kind: kind})
			server.NewBucket(b, "list")
			server.Setenv(b)
			benchmarkList(b, newLookerIn(b, server.URL("list", "mgmt")))
		})
	}
}
