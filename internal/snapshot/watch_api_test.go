//go:build api

package snapshot_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// TestAPIWatchedSnapshotEqualsAFullOne: a large source is listed kind by kind and then watched.
// What happens before, between and after gives the same snapshot as reading everything. Each
// subtest continues with the store and the source of the one before.
func TestAPIWatchedSnapshotEqualsAFullOne(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "incremental-w-", "--workloads", "6", "--machines", "3",
		"--fast")
	c, last, first := newChangingSource(t, 5, watches)
	t.Run("changes of objects are watched", func(t *testing.T) {
		for range 3 {
			last = c.round(last, first)
		}
	})
	const all = -1
	reads := func(name string, least, most int64, prepare func(), change func(*snapshot.Options)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			if prepare != nil {
				prepare()
			}
			last, _ = c.take(change)
			switch read := last.Read; {
			case least == all && read != last.Counts.Objects:
				t.Errorf("%d of %d objects read", read, last.Counts.Objects)
			case least != all && (read < least || read > most || read == last.Counts.Objects):
				t.Errorf("%d of %d objects read, want %d to %d", read, last.Counts.Objects, least, most)
			}
			c.source.onList, c.source.onWatch, c.source.alter = nil, nil, nil
		})
	}
	reads("after 410 Expired for all watches every object is read", all, 0, func() {
		c.source.onWatch = func(kube.Kind) error { return kube.ErrExpired }
	}, nil)
	reads("a kind whose watch has no bookmark is read whole, the others are not", 0, 1<<20, func() {
		c.source.onWatch = func(k kube.Kind) error {
			if k.Kind == "Machine" {
				return kube.ErrUnproven
			}
			return nil
		}
	}, nil)
	reads("when leases as of the parent are compacted, metadata is compared", 1, 12, func() {
		c.change(last.Envelope)
		c.forgetLeases(last)
	}, nil)
	reads("when etcd went back in time every object is read", all, 0,
		func() { c.restoredEtcd(last) }, nil)
	reads("without a catalog every object is read", all, 0, func() { c.newCatalog() }, nil)
	reads("with the new catalog only changes are read", 0, 1<<20,
		func() { c.change(last.Envelope) }, nil)
	reads("a kind whose CRD changed is read whole, the others are not", 6, 1<<20,
		func() { c.upgrade("machinesets.cluster.x-k8s.io") }, nil)
	reads("another version of the program reads every object", all, 0, nil,
		func(o *snapshot.Options) { o.Writer = "another version" })
}

// forgetLeases makes the source unable to list leases as of a snapshot.
func (c *changingSource) forgetLeases(last *snapshot.Result) {
	c.source.onList = func(k kube.Kind, o kube.ListOptions) error {
		if k.Kind == kube.LeaseKind.Kind && o.Exact == last.ResourceVersion {
			return kube.ErrExpired
		}
		return nil
	}
}

// restoredEtcd makes what the source shows older than what is known.
func (c *changingSource) restoredEtcd(last *snapshot.Result) {
	c.forgetLeases(last)
	var once sync.Once
	c.source.alter = func(k kube.Kind, o kube.ListOptions, raw []byte) []byte {
		if k.Kind == "Machine" && o.Metadata && o.Limit == 0 {
			once.Do(func() {
				version := string(raw[bytes.Index(raw, []byte(`"resourceVersion":"`))+len(
					`"resourceVersion":"`):])
				version = version[:strings.Index(version, `"`)]
				raw = bytes.Replace(raw, []byte(`"resourceVersion":"`+version+`"`),
					[]byte(`"resourceVersion":"1"`), 1)
			})
		}
		return raw
	}
}

// upgrade changes a CustomResourceDefinition, as a new version of a provider does.
func (c *changingSource) upgrade(name string) {
	c.t.Helper()
	program, err := kubetest.Lab()
	if err != nil {
		c.t.Fatal(err)
	}
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/names/shortNames/-","value":"up%d"}]`,
		time.Now().UnixNano())
	out, err := exec.CommandContext(c.t.Context(), filepath.Join(filepath.Dir(program), "kubectl"),
		"--kubeconfig", servers.Options(0).KubeconfigFile, "--cache-dir", c.t.TempDir(),
		"patch", "crd", name, "--type=json", "-p", patch).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// TestAPIChangesDuringCaptureAreInTheSnapshotUpToItsVersion, and no further: a large source changes
// while it is listed and watched.
func TestAPIChangesDuringCaptureAreInTheSnapshotUpToItsVersion(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "during-", "--workloads", "2", "--machines", "3",
		"--fast")
	r := newChainFixture(t)
	r.exactLimit = watches
	kinds, err := r.m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, _ := kube.FindKind(kinds, object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"})
	var names []object.Key
	_, err = r.m.Reader().List(t.Context(), k, kube.ListOptions{}, func(raw []byte) error {
		if n := mgmtKey(raw); strings.HasPrefix(n.Namespace, "during-") {
			names = append(names, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	touch := func(n object.Key, value string) {
		t.Helper()
		if _, err := r.m.Writer().PatchMetadata(t.Context(), k, n.Namespace, n.Name,
			map[string]any{"annotations": map[string]any{"test.mgmtd.dev/during": value}}); err != nil {
			t.Error(err)
		}
	}
	// Secrets are listed after Machines, and all are watched after both.
	var listed, watched atomic.Bool
	r.source.onList = func(kind kube.Kind, o kube.ListOptions) error {
		if kind.Kind == "Secret" && o.Whole && !listed.Swap(true) {
			touch(names[0], "before-the-cut")
			u, err := r.m.Reader().Get(t.Context(), k, names[1].Namespace, names[1].Name)
			if err != nil {
				return err
			}
			return r.m.Writer().Delete(t.Context(), k, names[1].Namespace, names[1].Name, u.GetUID(), "")
		}
		return nil
	}
	r.source.onWatch = func(kube.Kind) error {
		if !watched.Swap(true) {
			touch(names[2], "after-the-cut")
		}
		return nil
	}
	has := func(s *snapshot.Result, n object.Key) string {
		t.Helper()
		body, there := r.contents(s.Envelope)[object.Ref{Group: k.Group, Kind: k.Kind,
			Namespace: n.Namespace, Name: n.Name}]
		switch {
		case !there:
			return "gone"
		case bytes.Contains(body, []byte("before-the-cut")):
			return "before"
		case bytes.Contains(body, []byte("after-the-cut")):
			return "after"
		}
		return "as it was"
	}
	first, err := snapshot.Create(t.Context(), r.options())
	if err != nil {
		t.Fatal(err)
	}
	if !listed.Load() || !watched.Load() {
		t.Fatal("nothing was done")
	}
	// A Machine that is being deleted stays until its finalizers are gone: it is in the snapshot.
	for i, want := range []string{"before", "as it was", "as it was", "as it was"} {
		if got := has(first, names[i]); got != want && !(i == 1 && got == "gone") {
			t.Errorf("in the first snapshot Machine %d is %s, want %s", i, got, want)
		}
	}
	second, _ := r.take(nil)
	if got := has(second, names[2]); got != "after" {
		t.Errorf("in the second snapshot Machine 2 is %s", got)
	}
	if second.Read != 1 {
		t.Errorf("the second snapshot read %d objects", second.Read)
	}
}

// TestAPIListThatBreaksOffIsSentAgain: what an answer gave before it broke off is not in the
// snapshot of a large source, unless it is in the next answer too.
func TestAPIListThatBreaksOffIsSentAgain(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "breaks-", "--workloads", "1", "--machines", "3",
		"--fast")
	r := newChainFixture(t)
	r.exactLimit = watches
	var given int
	r.source.breaks = func(k kube.Kind, o kube.ListOptions) bool {
		if k.Kind != "Machine" {
			return false
		}
		given++
		if given > 2 && o.Whole {
			t.Error("the next try asks for one answer as well")
		}
		return given == 2
	}
	r.take(nil)
	if given <= 2 {
		t.Fatalf("%d Machines were given", given)
	}
	r.source.breaks = nil
	r.take(nil)

	// So is a list of metadata, which is sent when watches cannot start at the parent.
	metadata := 0
	r.source.onList = func(k kube.Kind, o kube.ListOptions) error {
		if k.Kind == kube.LeaseKind.Kind && o.Exact != "" {
			return kube.ErrExpired
		}
		return nil
	}
	r.source.breaks = func(k kube.Kind, o kube.ListOptions) bool {
		if k.Kind != "Machine" || !o.Whole || !o.Metadata {
			return false
		}
		metadata++
		return metadata == 2
	}
	last, _ := r.take(nil)
	if metadata <= 2 {
		t.Fatalf("the metadata of %d Machines was given", metadata)
	}
	if last.Read > 12 {
		t.Errorf("%d objects read", last.Read)
	}
}

// TestAPIBrokenWatchesAreRestarted: connections that break in the middle of watches cost time and
// nothing else.
func TestAPIBrokenWatchesAreRestarted(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "incremental-r-", "--workloads", "2", "--machines", "3",
		"--fast")
	c, last, whole := newChangingSource(t, 7, watches)
	cutter := newCutter(t)
	broken, err := kube.Connect(t.Context(), kube.Options{Name: "mgmt-1",
		KubeconfigFile: cutter.kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	c.source.Source = broken.Reader()
	var cuts atomic.Int32
	c.source.onWatch = func(kube.Kind) error {
		if cuts.Add(1) == 5 {
			go func() {
				for range 3 {
					time.Sleep(300 * time.Millisecond)
					cutter.cut()
				}
			}()
		}
		return nil
	}
	c.round(last, whole)
	if cutter.broken.Load() == 0 {
		t.Error("no connection was broken")
	}
}

// cutter passes connections to an API server on, and breaks them.
type cutter struct {
	kubeconfig string
	broken     atomic.Int32

	mu    sync.Mutex
	conns []net.Conn
}

func newCutter(t *testing.T) *cutter {
	t.Helper()
	config, err := clientcmd.LoadFromFile(servers.Options(0).KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	c := &cutter{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	var target string
	for _, server := range config.Clusters {
		target = strings.TrimPrefix(server.Server, "https://")
		server.Server = "https://" + listener.Addr().String()
	}
	if err := clientcmd.WriteToFile(*config, c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	go c.serve(context.WithoutCancel(t.Context()), listener, target)
	return c
}

func (c *cutter) serve(ctx context.Context, listener net.Listener, target string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
		if err != nil {
			_ = from.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, from, to)
		c.mu.Unlock()
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			}()
		}
	}
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if conn.Close() == nil {
			c.broken.Add(1)
		}
	}
	c.conns = nil
}

func mgmtKey(raw []byte) object.Key {
	meta := gjson.GetBytes(raw, "metadata")
	return object.Key{Namespace: meta.Get("namespace").String(), Name: meta.Get("name").String()}
}
