package faultbucket

import (
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
	buckettest.RunBatchRemover(t, func(*testing.T) buckettest.BatchBucket { return NewVersioned() })
}

func TestVersionedHasPreviousVersions(t *testing.T) {
	v := NewVersioned()
	for _, text := range []string{"first", "second", "third"} {
		v.Overwrite("key", []byte(text))
	}
	read := func() (list []string) {
		versions, err := v.Versions(t.Context(), "key")
		if err != nil {
			t.Error(err)
		}
		for _, is := range versions {
			if is.Current || is.Deleted {
				continue
			}
			data, err := bucket.ReadVersion(t.Context(), v, "key", is.ID, 100)
			if err != nil {
				t.Error(err)
			}
			list = append(list, string(data))
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
