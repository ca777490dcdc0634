//go:build api

package service

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// cutOff is the way to the first API server through a network that can be cut.
type cutOff struct {
	open atomic.Bool
	kube.Options
}

// newCutOff is cut at first.
func newCutOff(t *testing.T) *cutOff {
	t.Helper()
	c := &cutOff{Options: servers.Options(0)}
	config, err := clientcmd.LoadFromFile(c.KubeconfigFile)
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		must(t, err)
		cluster.Server = "https://" + listener.Addr().String()
		go c.serve(t.Context(), listener, server.Host)
	}
	c.KubeconfigFile = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, c.KubeconfigFile))
	return c
}

func (c *cutOff) serve(ctx context.Context, listener net.Listener, host string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if !c.open.Load() {
			_ = conn.Close()
			continue
		}
		go func() {
			defer conn.Close()
			server, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
			if err != nil {
				return
			}
			defer server.Close()
			go func() { _, _ = io.Copy(server, conn) }()
			_, _ = io.Copy(conn, server)
		}()
	}
}

// TestAPII1SourceThatComesBackIsFenced: while the daemon cannot reach a management cluster, one of
// its workload clusters is restored elsewhere, and somebody else writes a record that nobody
// vouches for. The daemon has read the records before that, so that its first pass knows of
// neither. It knows of a third one, whose pause nobody acknowledges, and does not wait for that.
func TestAPII1SourceThatComesBackIsFenced(t *testing.T) {
	f := newFenceFixture(t, "returns")
	way := newCutOff(t)
	f.s.cfg.Sources = []kube.Options{way.Options}
	f.took(catalog.KindMove, way.Options, "moved")
	f.took(catalog.KindRestore, way.Options, "restored")
	f.took(catalog.KindMove, way.Options, "lifted")
	f.claim(f.store, units[2], elsewhere, 0)
	must(t, f.change(units[2], func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, capi.AnnotationBlockMove, "")
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	cut := time.Now()
	go func() {
		defer close(done)
		f.s.fences.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	isDown := func() bool {
		f.s.fences.ownerCache.mu.Lock()
		defer f.s.fences.ownerCache.mu.Unlock()
		return f.s.fences.down[way.Name]
	}
	for deadline := time.Now().Add(time.Minute); !isDown() ||
		f.s.fences.due("default"); { // it was read since
		if time.Now().After(deadline) {
			t.Fatalf("down %t, records are due %t", isDown(), f.s.fences.due("default"))
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.claim(f.otherHost(), units[0], elsewhere, 0)
	f.claim(f.otherSigner(), units[1], elsewhere, 0)
	f.wantStates("cut off", "at work ", "at work ", "at work ")
	// await returns a time at which a unit was not paused yet: when the last look began that said so.
	await := func(unit string) time.Time {
		t.Helper()
		before := time.Now()
		for deadline := time.Now().Add(30 * time.Second); ; {
			began := time.Now()
			if f.state(unit) == "paused record" {
				return before
			}
			if before = began; before.After(deadline) {
				t.Fatalf("%s is %s", unit, f.state(unit))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	opened := time.Now()
	way.open.Store(true)
	least := await(units[0]).Sub(opened)
	f.wantStates("back", "paused record", "at work ", "paused record")
	// The pass notes the overlap after the pause, and the first pass has noted a shorter one.
	var last cameBack
	for deadline := time.Now().Add(30 * time.Second); last.overlap < least; {
		if time.Now().After(deadline) {
			t.Fatalf("overlap %s, and it took at least %s", last.overlap, least)
		}
		time.Sleep(50 * time.Millisecond)
		last, _ = f.s.fences.last(way.Name)
	}
	t.Log("overlap", last.overlap)
	// It begins with the last try before the first answer.
	if last.paused != 1 || last.overlap > time.Since(cut) {
		t.Errorf("%d paused, overlap %s of %s", last.paused, last.overlap, time.Since(cut))
	}
	must(t, f.change(units[2], func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationBlockMove)
	}))
	// a record that is written while it answers
	f.claim(f.store, units[1], elsewhere, 0)
	await(units[1])
	f.wantStates("a new record", "paused record", "paused record", "paused record")
	cancel()
	<-done
	f.finishesWhatDied(way.Options)
}

// took makes the history of an operation that took a Cluster to another management cluster, and
// that is not there any more.
func (f *fenceFixture) took(kind catalog.Kind, from kube.Options, name string) {
	f.t.Helper()
	c, err := f.s.openCatalog(f.t.Context())
	must(f.t, err)
	op, err := c.CreateOperation(f.t.Context(), catalog.Operation{Kind: kind,
		Source: catalog.Side{Name: from.Name, UID: servers.Connect(f.t, 0).UID()}})
	must(f.t, err)
	must(f.t, ownership.Claim(f.t.Context(), f.store, ownership.Request{WorkloadID: "id-of-" + name,
		Workload: f.name(name), To: elsewhere, Operation: string(op.ID)}))
}

// finishesWhatDied: a daemon died after it had paused two Clusters, before it armed the policy for
// them. The next one finishes that. The policy protects these, and what a move or a restore took
// away, but for one that an operator has let be created again.
func (f *fenceFixture) finishesWhatDied(way kube.Options) {
	f.t.Helper()
	m := servers.Connect(f.t, 0)
	kinds, err := m.Reader().Kinds(f.t.Context())
	must(f.t, err)
	p := &fence.Policy{Reader: m.Reader(), Writer: m.Writer(), Prober: m.Prober(), Kinds: kinds}
	ref := func(unit string) object.Ref {
		return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: f.namespace,
			Name: unit}
	}
	must(f.t, p.Disarm(f.t.Context(), []object.Ref{ref(units[0]), ref(units[2]), ref("moved"),
		ref("restored")}))
	must(f.t, p.Arm(f.t.Context(), []fence.Cluster{{Ref: ref("lifted"), ID: "id-of-lifted"}}))
	lifted := f.fence(&mgmtv1.FenceMgmtRequest{Lift: true, Selection: &mgmtv1.Selection{
		Workloads: []string{f.name("lifted")}}}).GetLifted()
	owners, err := f.s.fences.read(f.t.Context(), &f.s.cfg.Locations[0])
	must(f.t, err)
	w := f.s.fences.of(way)
	pass := func(again bool) (guarded bool) {
		guarded, err := w.pass(f.t.Context(), m, map[string]locationOwners{"default": owners}, time.Now(),
			again, false)
		must(f.t, err)
		return guarded
	}
	guarded := pass(false)
	state, err := p.State(f.t.Context())
	must(f.t, err)
	for _, name := range []string{units[0], units[2], "moved", "restored"} {
		if !state.Denies(ref(name)) {
			f.t.Errorf("%s is not denied", name)
		}
	}
	if len(lifted) != 1 || state.Denies(ref("lifted")) {
		f.t.Errorf("lifted %v, denied %v", lifted, state.Denies(ref("lifted")))
	}
	if pass(true); !guarded || !w.complete || w.unprotected != 0 {
		f.t.Errorf("guarded %v, complete %v, %d not protected", guarded, w.complete, w.unprotected)
	}
	must(f.t, p.Disarm(f.t.Context(), []object.Ref{ref("moved"), ref("restored"), ref("lifted")}))
}
