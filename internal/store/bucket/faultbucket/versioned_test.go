package faultbucket

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/buckettest"
)

func TestVersionedIsABucket(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return NewVersioned() })
	buckettest.RunConditional(t, func(*testing.T) buckettest.ConditionalBucket {
		return NewVersioned()
	})
	buckettest.RunRemover(t, func(*testing.T) buckettest.RemoverBucket { return NewVersioned() })
}

func TestVersionedHasPreviousVersions(t *testing.T) {
	v := NewVersioned()
	for _, text := range []string{"first", "second", "third"} {
		v.Overwrite("key", []byte(text))
	}
	read := func() (list []string) {
		err := v.PreviousVersions(t.Context(), "key", func(r io.Reader) error {
			data, err := io.ReadAll(r)
			list = append(list, string(data))
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return list
	}
	if diff := cmp.Diff([]string{"second", "first"}, read()); diff != "" {
		t.Errorf("overwritten (-want +got):\n%s", diff)
	}
	v.Hide("key")
	if diff := cmp.Diff([]string{"third", "second", "first"}, read()); diff != "" {
		t.Errorf("hidden (-want +got):\n%s", diff)
	}
	if len(v.Keys("")) != 0 {
		t.Error("a hidden key is listed")
	}
}
