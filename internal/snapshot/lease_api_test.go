//go:build api

package snapshot_test

import (
	"bytes"
	"context"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// otherHistory is a source that answers as one whose etcd was restored from a backup.
type otherHistory struct {
	capture.Source
	// version is what the first question for the newest resourceVersion returns; "" asks the source
	version string
	leases  func(o kube.ListOptions, lease []byte) []byte // changes leases; nil leaves them
	// kinds that have an etcd of their own
	apart  func(k kube.Kind) bool
	listed func(k kube.Kind, o kube.ListOptions) (stop error) // called for every LIST
}

func (h *otherHistory) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func([]byte) error) (kube.ListResult, error) {
	if h.listed != nil {
		if err := h.listed(k, o); err != nil {
			return kube.ListResult{}, err
		}
	}
	give := fn
	if k.Kind == kube.LeaseKind.Kind && h.leases != nil {
		give = func(raw []byte) error { return fn(h.leases(o, bytes.Clone(raw))) }
	}
	got, err := h.Source.List(ctx, k, o, give)
	if h.apart != nil && h.apart(k) {
		got.ResourceVersion += "00"
	}
	if k.Kind == kube.NamespaceKind.Kind && o.Limit == 1 && h.version != "" {
		got.ResourceVersion, h.version = h.version, ""
	}
	return got, err
}

// TestAPIRestoredEtcdMakesTheIndexUseless: every object is read once the source is older than the
// parent, or its leases are others.
func TestAPIRestoredEtcdMakesTheIndexUseless(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "history-", "--workloads", "1", "--machines", "1",
		"--fast")
	r := newChainFixture(t)
	h := &otherHistory{Source: r.m.Reader()}
	take := func() *snapshot.Result {
		t.Helper()
		o := r.options()
		o.Source = h
		taken, err := snapshot.Create(t.Context(), o)
		if err != nil || taken.NotRemembered != nil {
			t.Fatal(err, taken.NotRemembered)
		}
		return taken
	}
	known := func(what string) *snapshot.Result {
		t.Helper()
		take()
		taken := take()
		if taken.Read == taken.Counts.Objects {
			t.Fatalf("before %s: all %d objects read", what, taken.Read)
		}
		return taken
	}
	unknown := func(what string) {
		t.Helper()
		if taken := take(); taken.Read != taken.Counts.Objects {
			t.Errorf("%s: %d of %d objects read", what, taken.Read, taken.Counts.Objects)
		}
		h.leases, h.listed = nil, nil
	}

	read := false
	known("an earlier version")
	h.version = "7"
	h.listed = func(k kube.Kind, o kube.ListOptions) error {
		read = read || k.Kind == "Machine"
		if k.Kind == kube.LeaseKind.Kind && !read {
			t.Errorf("leases are asked for as of %s, which the source has not reached", o.Exact)
		}
		return nil
	}
	unknown("an earlier version")

	parent := known("other leases")
	version := regexp.MustCompile(`"resourceVersion":"\d+"`)
	h.leases = func(o kube.ListOptions, lease []byte) []byte {
		if o.Exact != parent.ResourceVersion {
			return lease
		}
		return version.ReplaceAll(lease, []byte(`"resourceVersion":"7"`))
	}
	unknown("other leases")
}

// TestAPILeasesThatNobodyRenewsProveNothing: they are the same before and after etcd is restored.
func TestAPILeasesThatNobodyRenewsProveNothing(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "leases-", "--workloads", "1", "--machines", "1",
		"--fast")
	r := newChainFixture(t)
	r.exactLimit = watches
	compared := false
	h := &otherHistory{Source: r.m.Reader(), listed: func(k kube.Kind, o kube.ListOptions) error {
		compared = compared || k.Kind == "Machine" && o.Metadata && o.Limit == 0
		return nil
	}}
	take := func() bool {
		t.Helper()
		compared = false
		o := r.options()
		o.Source = h
		if taken, err := snapshot.Create(t.Context(), o); err != nil || taken.NotRemembered != nil {
			t.Fatal(err, taken.NotRemembered)
		}
		return compared
	}
	take()
	if take() {
		t.Error("leases are renewed: what was known was compared, not watched")
	}
	renewed := regexp.MustCompile(`"renewTime":"[^"]*"`)
	h.leases = func(_ kube.ListOptions, lease []byte) []byte {
		return renewed.ReplaceAll(lease, []byte(`"renewTime":"2026-01-01T00:00:00.000000Z"`))
	}
	take()
	if !take() {
		t.Error("leases that nobody renews were taken for a mark")
	}
}

// TestAPIKindWithItsOwnEtcdIsReadAtItsNewestState: it cannot be read as of a resourceVersion of the
// others. The envelope names it.
func TestAPIKindWithItsOwnEtcdIsReadAtItsNewestState(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "apart-", "--workloads", "1", "--machines", "1",
		"--fast")
	r := newChainFixture(t)
	both := func(way string) {
		t.Helper()
		h := &otherHistory{Source: r.m.Reader(),
			apart: func(k kube.Kind) bool { return k.Kind == "Secret" }}
		h.listed = func(k kube.Kind, o kube.ListOptions) error {
			if k.Kind == "Secret" && o.Exact != "" {
				t.Errorf("%s: Secrets are asked for as of %s", way, o.Exact)
			}
			return nil
		}
		for range 3 {
			o := r.options()
			o.Source = h
			taken, err := snapshot.Create(t.Context(), o)
			if err != nil || taken.NotRemembered != nil {
				t.Fatal(err, taken.NotRemembered)
			}
			if diff := cmp.Diff([]string{"Secret"}, taken.NotInCut); diff != "" {
				t.Errorf("%s: %s", way, diff)
			}
			if n := len(r.contents(taken.Envelope)); int64(n) != taken.Counts.Objects {
				t.Errorf("%s: %d objects of %d", way, n, taken.Counts.Objects)
			}
		}
	}
	both("small")
	r.exactLimit = watches
	both("large")
}
