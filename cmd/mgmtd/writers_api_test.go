//go:build api

package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
	"github.com/mgmtd/mgmtd/internal/task"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const writerConfig = `apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters:
  - {name: %s, kubeconfigFile: %s}
  catalog: catalog.db
  recipients: [%s]
  signingKeyFile: signing.key
  trustedKeyFiles: [signing.pub, other.pub]
  listen: {unix: mgmtd.sock}
  verify: {level: none}
`

// writer is a daemon with a source and keys of its own, that writes to a place which another one
// writes to.
type writer struct {
	*asked
	p                   *process
	dir, name, identity string
	source              *kube.Mgmt
	secrets             kube.Kind
	taken               []string // ids, the oldest first
}

// newWriters starts a daemon for each server. Each trusts the keys of both, and encrypts to its
// own.
func newWriters(t *testing.T, s3 *s3test.Server) (list [2]*writer) {
	t.Helper()
	servers.Clear(t)
	var recipients [2]string
	for i := range list {
		servers.Fleet(t, i, "--namespace-prefix", "writers-", "--workloads", "2", "--machines", "1",
			"--fast")
		w := &writer{dir: shortDir(t), name: fmt.Sprintf("writer-%d", i),
			identity: filepath.Join(t.TempDir(), "identity.txt"), source: servers.Connect(t, i)}
		kinds, err := w.source.Reader().Kinds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.secrets, _ = kube.FindKind(kinds, object.GroupKind{Kind: "Secret"})
		var identity []byte
		identity, recipients[i] = newKeys(t, w.dir)
		write(t, filepath.Dir(w.identity), "identity.txt", string(identity))
		list[i] = w
	}
	for i, w := range list {
		pub, err := os.ReadFile(filepath.Join(list[1-i].dir, "signing.pub"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, w.dir, "other.pub", string(pub))
		write(t, w.dir, "mgmtd.yaml", fmt.Sprintf(writerConfig, w.name, servers.Options(i).KubeconfigFile,
			recipients[i])+s3Location(s3, "shared"))
		w.p = startProcess(t, programs(t), w.dir)
		w.asked = ask(w.p)
	}
	return list
}

// take changes a Secret of the source and takes a snapshot; each third one writes everything.
func (w *writer) take(ctx context.Context) error {
	n := len(w.taken) + 1
	change := map[string]any{"annotations": map[string]any{"test.mgmtd.dev/change": strconv.Itoa(n)}}
	if _, err := w.source.Writer().PatchMetadata(ctx, w.secrets, "writers-team-0000", "w-00000-ca",
		change); err != nil {
		return err
	}
	resp, err := w.snapshots.CreateSnapshot(ctx, &mgmtv1.CreateSnapshotRequest{Full: n%3 == 0})
	if err := w.operation(ctx, resp.GetOperation(), err); err != nil {
		return fmt.Errorf("%s, snapshot %d: %w", w.name, n, err)
	}
	done, err := w.operations.GetOperation(ctx,
		&mgmtv1.GetOperationRequest{Id: resp.GetOperation().GetId()})
	if err == nil {
		w.taken = append(w.taken, done.GetOperation().GetSnapshotId())
	}
	return err
}

// prune retains the newest snapshot of each source, and what the shortest grace retains.
func (w *writer) prune(ctx context.Context) error {
	resp, err := mgmtv1.NewPruneServiceClient(w.p.conn).RunPrune(ctx, &mgmtv1.RunPruneRequest{
		Spec: &mgmtv1.PruneSpec{Retention: &mgmtv1.Retention{KeepLast: 1},
			Grace: durationpb.New(service.MinGrace)},
	})
	if err := w.operation(ctx, resp.GetOperation(), err); err != nil {
		return fmt.Errorf("%s, prune: %w", w.name, err)
	}
	return nil
}

// inCatalog are the ids that a catalog has, by the UID of the source, the oldest first.
func inCatalog(t *testing.T, path string) map[string][]string {
	t.Helper()
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.Snapshots(t.Context(), catalog.SnapshotFilter{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b catalog.SnapshotRecord) int {
		return int(a.Sequence - b.Sequence)
	})
	ids := map[string][]string{}
	for _, s := range list {
		ids[s.Source] = append(ids[s.Source], s.ID)
	}
	return ids
}

// dayLater makes all that lies in the bucket a day older.
func dayLater(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chtimes(path, info.ModTime().Add(-24*time.Hour), info.ModTime().Add(-24*time.Hour))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAPIWritersShareABucket: two daemons with keys and sources of their own write to one place
// while one of them prunes it without a pause. What was taken meanwhile, and what that builds on,
// is all there and whole, and each catalog says so.
func TestAPIWritersShareABucket(t *testing.T) {
	s3 := s3test.Start(t, s3test.Options{})
	s3.NewBucket(t, "shared")
	writers := newWriters(t, s3)
	both := func(n int, other func(context.Context, <-chan struct{}) error) {
		t.Helper()
		g, ctx := task.WithContext(t.Context())
		var atWork sync.WaitGroup
		for _, w := range writers {
			atWork.Add(1)
			g.Go(func() (err error) {
				defer atWork.Done()
				for i := 0; i < n && err == nil; i++ {
					err = w.take(ctx)
				}
				return err
			})
		}
		over := make(chan struct{})
		g.Go(func() error { atWork.Wait(); close(over); return nil })
		g.Go(func() error { return other(ctx, over) })
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	// the store is made by both
	both(1, func(context.Context, <-chan struct{}) error { return nil })
	const days, perDay = 3, 4
	prunes := 0
	for range days {
		dayLater(t, filepath.Join(s3.Root, "shared"))
		both(perDay, func(ctx context.Context, over <-chan struct{}) error {
			for {
				if err := writers[0].prune(ctx); err != nil {
					return err
				}
				prunes++
				select {
				case <-over:
					return nil
				default:
				}
			}
		})
	}
	t.Logf("%d prunes at the same time as %d snapshots", prunes, 2*days*perDay)
	left, err := filepath.Glob(filepath.Join(s3.Root, "shared/p/snapshots/*/*.json"))
	if err != nil || len(left) != 2*(perDay+1) {
		t.Errorf("%d snapshots are left: what was superseded a day ago is to go, %v", len(left), err)
	}
	// The catalog of who did not prune learns what is gone when it does.
	if err := writers[1].prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for i, w := range writers {
		uid := w.source.UID()
		want[uid] = w.taken[len(w.taken)-perDay-1:]
		w.p.end(t, w.dir, syscall.SIGTERM)
		if diff := cmp.Diff(map[string][]string{uid: want[uid]},
			inCatalog(t, filepath.Join(w.dir, "catalog.db"))); diff != "" {
			t.Errorf("in the catalog of %d (-want +got):\n%s", i, diff)
		}
	}
	wantWhole(t, s3, writers, want)
}

// wantWhole fails unless exactly these snapshots are in the bucket, whole, and a new catalog knows
// them.
func wantWhole(t *testing.T, s3 *s3test.Server, writers [2]*writer, want map[string][]string) {
	t.Helper()
	dir := t.TempDir()
	c := &commands{t: t, bin: programs(t), out: places{}, env: []string{"HOME=" + dir,
		"AWS_ACCESS_KEY_ID=" + s3.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3.SecretKey}}
	flags := []string{"--standalone", "--store", s3.URL("shared", "p") + "&path-style=true",
		"--catalog", filepath.Join(dir, "new.db")}
	for _, w := range writers {
		flags = append(flags, "--trusted-key", filepath.Join(w.dir, "signing.pub"), "--identity",
			w.identity)
	}
	c.mgmtctl(0, append([]string{"catalog", "rebuild"}, flags...)...)
	if diff := cmp.Diff(want, inCatalog(t, filepath.Join(dir, "new.db"))); diff != "" {
		t.Errorf("in a new catalog (-want +got):\n%s", diff)
	}
	listed := gjson.Get(c.mgmtctl(0, append([]string{"snapshot", "list", "-o", "json"}, flags...)...),
		"snapshots").Array()
	if n := len(slices.Concat(slices.Collect(maps.Values(want))...)); len(listed) != n {
		t.Errorf("%d snapshots are in the bucket, want %d", len(listed), n)
	}
	for _, s := range listed {
		c.mgmtctl(0, append([]string{"snapshot", "verify", s.Get("id").String(), "--source",
			s.Get("sourceUid").String(), "--level", "full"}, flags...)...)
	}
}
