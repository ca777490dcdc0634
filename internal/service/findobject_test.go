package service

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func (l *looker) find(req *mgmtv1.FindObjectRequest) ([]*mgmtv1.FindObjectResponse, error) {
	stream := &sink[mgmtv1.FindObjectResponse]{ctx: l.t.Context()}
	if req.Identity == nil {
		req.Identity = l.identity
	}
	err := l.service.FindObject(req, stream)
	return stream.sent, err
}

// told returns what was found, one word for each snapshot.
func told(found []*mgmtv1.FindObjectResponse) string {
	var words []string
	for _, f := range found {
		word := strings.ToLower(strings.TrimPrefix(f.GetHistory().String(), "OBJECT_HISTORY_"))
		words = append(words, fmt.Sprint(f.GetSnapshot().GetSequence(), " ", word))
	}
	return strings.Join(words, ", ")
}

// TestFindTellsWhatBecameOfAnObject from snapshot to snapshot, newest first, and takes no snapshot
// of a selection for one that lost the object.
func TestFindTellsWhatBecameOfAnObject(t *testing.T) {
	l := newLooker(t)
	l.take(nil)
	l.source.PutMachine("team-0", "new", "w-0", 1)
	l.take(nil)
	l.take(func(o *snapshot.Options) { o.Scope.Namespaces = []string{"team-1"} })
	l.take(nil)
	l.source.PutMachine("team-0", "new", "w-0", 2) // another UID
	l.take(nil)
	for _, tt := range []struct {
		kind, namespace, name string
		changes               bool
		want                  string
	}{
		{"devmachine", "team-0", "new", false, "5 replaced, 4 same, 2 appeared"},
		{"DevMachine", "team-0", "new", true, "5 replaced, 2 appeared"},
		{"Cluster", "team-0", "w-1", true, "1 oldest"},
		{"Namespace", "", "team-0", false, "5 same, 4 same, 2 same, 1 oldest"},
		{"Cluster", "team-1", "w-3", false, "5 same, 4 same, 3 oldest, 2 same, 1 oldest"},
	} {
		got, err := l.find(&mgmtv1.FindObjectRequest{Kind: tt.kind, Namespace: tt.namespace,
			Name: tt.name, Changes: tt.changes})
		if err != nil || told(got) != tt.want {
			t.Errorf("%s %s: %s, %v; want %s", tt.kind, tt.name, told(got), err, tt.want)
		}
		wantNoValues(t, tt.name, fmt.Sprint(got))
	}
	got, err := l.find(&mgmtv1.FindObjectRequest{Namespace: "team-0", Name: "w-0-0", Changes: true})
	if err != nil || len(got) != 4 || got[0].GetObject().GetRef().GetKind() != "Secret" ||
		got[1].GetObject().GetRef().GetKind() != "KubeadmConfig" {
		t.Errorf("of every kind: %v, %v", got, err)
	}
	for reason, req := range map[Reason]*mgmtv1.FindObjectRequest{
		ReasonNotFound: {Kind: "Secret", Namespace: "team-0", Name: "none"},
		ReasonUsage:    {Kind: "Secret", Namespace: "team-0"},
		ReasonIdentity: {Kind: "Secret", Namespace: "team-0", Name: "w-0-ca", Identity: []byte{}},
	} {
		got, err := l.find(req)
		if e := FromStatus(err); e == nil || e.Reason != reason || len(got) > 0 {
			t.Errorf("%s: %v, %v", reason, got, err)
		}
	}
}

// TestFindNamesSnapshotsThatItCannotRead, and searches the others.
func TestFindNamesSnapshotsThatItCannotRead(t *testing.T) {
	l := newLooker(t)
	broken, lost := l.take(nil), l.take(nil)
	l.source.PutMachine("team-0", "new", "w-0", 1)
	l.take(nil)
	file := l.st.String() + "/" + broken.Key().String()
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.st.RemoveContent(t.Context(), lost.Tree); err != nil {
		t.Fatal(err)
	}
	got, err := l.find(&mgmtv1.FindObjectRequest{Kind: "Cluster", Namespace: "team-0", Name: "w-0"})
	if err != nil || len(got) != 3 || got[0].GetHistory() != histories[snapshot.Oldest] {
		t.Fatalf("%v, %v", got, err)
	}
	for i, e := range []store.Signed{broken, lost} {
		if p := got[i+1]; p.GetProblem() == "" || p.GetSnapshot().GetId() != string(e.ID) {
			t.Errorf("problem %d: %v", i, p)
		}
	}
}

// shardReads is a bucket that notes which shards are read.
type shardReads struct {
	bucket.Bucket
	mu   sync.Mutex
	keys []string
}

func (b *shardReads) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !strings.HasPrefix(key, "trees/") && !strings.HasPrefix(key, "snapshots/") &&
		key != "mgmtd.json" {
		b.keys = append(b.keys, key)
	}
	return b.Bucket.Get(ctx, key)
}

// TestFindReadsEachShardOnce: shards that snapshots share are read once, and packs never.
func TestFindReadsEachShardOnce(t *testing.T) {
	l := newLooker(t)
	db, err := catalog.Open(t.Context(), t.TempDir()+"/catalog.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	named := 0
	for range 3 {
		e := l.take(func(o *snapshot.Options) { o.State = db.SnapshotState(l.st.ID(), l.source.UID) })
		tree, err := l.st.GetTree(t.Context(), e.Tree)
		if err != nil {
			t.Fatal(err)
		}
		named += len(tree.Shards)
		l.source.PutMachine("team-0", "new", "w-0", 1)
	}
	reads := &shardReads{Bucket: l.service.s.buckets[""]}
	l.service.s.buckets[""] = reads
	if _, err := l.find(&mgmtv1.FindObjectRequest{Kind: "Cluster", Namespace: "team-0",
		Name: "w-0"}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(reads.keys)
	once := slices.Compact(slices.Clone(reads.keys))
	if n := len(reads.keys); n == 0 || n >= named || n != len(once) ||
		!strings.HasPrefix(reads.keys[0], "shards/") || !strings.HasPrefix(reads.keys[n-1], "shards/") {
		t.Errorf("reads, of %d shards: %q", named, reads.keys)
	}
}
