//go:build api

package s3_test

import (
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// TestAPIS3TagsBytes: a key that somebody wrote over has another tag, and the same bytes have the
// one of before.
func TestAPIS3TagsBytes(t *testing.T) {
	onEach(t, s3test.Options{}, func(t *testing.T, s *s3test.Server) {
		s.NewBucket(t, "tags")
		b := newS3(t, s3.Options{Bucket: "tags", Endpoint: s.Endpoint,
			CredentialsFile: s.CredentialsFile})
		tag := func() (tag string) {
			t.Helper()
			if err := b.List(t.Context(), "", func(i bucket.Info) error {
				tag = i.Tag
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return tag
		}
		write := func(text string) {
			t.Helper()
			if _, err := s.Client(t).PutObject(t.Context(), "tags", "key", strings.NewReader(text),
				int64(len(text)), minio.PutObjectOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Put(t.Context(), "key", []byte("ours")); err != nil {
			t.Fatal(err)
		}
		ours := tag()
		write("evil")
		evil := tag()
		write("ours")
		if again := tag(); ours == "" || evil == "" || evil == ours || again != ours {
			t.Errorf("tags %q, %q, %q", ours, evil, again)
		}
	})
}
