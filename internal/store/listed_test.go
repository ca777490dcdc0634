package store

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// tagged is a bucket that tags what it lists, as S3 servers do, and counts reads of envelopes.
type tagged struct {
	*directory.Bucket
	tag   string
	reads int
}

func (b *tagged) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasPrefix(key, "snapshots/") {
		b.reads++
	}
	return b.Bucket.Get(ctx, key)
}

func (b *tagged) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	return b.Bucket.List(ctx, prefix, func(i bucket.Info) error {
		i.Tag = b.tag
		return fn(i)
	})
}

// TestListedEnvelopesAreReadOnce while the storage gives them the same tag and the reader trusts
// the same keys; what is not trusted is read each time.
func TestListedEnvelopesAreReadOnce(t *testing.T) {
	own := testKeys(t)
	root := t.TempDir()
	b := &tagged{Bucket: directory.New(root), tag: "one"}
	st := mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, own), Create: true})
	if _, err := writeSnapshot(t.Context(), st, 1, nil); err != nil {
		t.Fatal(err)
	}
	var cache EnvelopeCache
	list := func(trusted []string, tag string) (trust Trust, reads int) {
		t.Helper()
		st := mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, KeyOptions{TrustedKeyFiles: trusted})})
		b.tag, b.reads = tag, 0
		stored, err := st.ListedSnapshots(t.Context(), "")
		if err != nil || len(stored) != 1 || stored[0].Tag != tag {
			t.Fatalf("%v, %v", stored, err)
		}
		e, err := st.GetListed(t.Context(), stored[0], &cache)
		if err != nil || e.Sequence != 1 || e.SHA256 == "" {
			t.Fatalf("%+v, %v", e, err)
		}
		return e.Trust, b.reads
	}
	unknown := testKeys(t).TrustedKeyFiles
	for _, tt := range []struct {
		what    string
		trusted []string
		tag     string
		trust   Trust
		reads   int
	}{
		{"first", own.TrustedKeyFiles, "one", Trusted, 1},
		{"again", own.TrustedKeyFiles, "one", Trusted, 0},
		{"by one who trusts others", unknown, "one", UnknownSigner, 1},
		{"by him again", unknown, "one", UnknownSigner, 1},
		{"by one who checks nothing", nil, "one", Unchecked, 1},
		{"by him again", nil, "one", Unchecked, 1},
		{"other bytes", own.TrustedKeyFiles, "two", Trusted, 1},
		{"those of before", own.TrustedKeyFiles, "one", Trusted, 0},
		{"without a tag", own.TrustedKeyFiles, "", Trusted, 1},
		{"without a tag again", own.TrustedKeyFiles, "", Trusted, 1},
	} {
		if trust, reads := list(tt.trusted, tt.tag); trust != tt.trust || reads != tt.reads {
			t.Errorf("%s: %s after %d reads, want %s after %d", tt.what, trust, reads, tt.trust, tt.reads)
		}
	}
	if len(cache.held) != 2 {
		t.Errorf("%d envelopes are cached, want those of two tags", len(cache.held))
	}
	if files, err := filepath.Glob(filepath.Join(root, "snapshots", "*", "*")); err != nil || len(files) != 1 {
		t.Errorf("%q, %v", files, err)
	}
}
