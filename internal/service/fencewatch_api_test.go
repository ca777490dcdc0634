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

	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/kube"
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
// neither. The overlap of 10 s is what design and documentation promise.
func TestAPII1SourceThatComesBackIsFenced(t *testing.T) {
	f := newFenceFixture(t, "returns")
	way := newCutOff(t)
	f.s.cfg.Sources = []kube.Options{way.Options}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.s.fences.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	for len(f.s.fences.cached()) == 0 {
		time.Sleep(50 * time.Millisecond)
	}
	f.claim(f.store, units[0], elsewhere, 0)
	f.claim(f.otherSigner(), units[1], elsewhere, 0)
	f.wantStates("cut off", "at work ", "at work ", "at work ")
	await := func(unit string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); f.state(unit) != "paused record"; {
			if time.Now().After(deadline) {
				t.Fatalf("%s is %s", unit, f.state(unit))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	way.open.Store(true)
	opened := time.Now()
	await(units[0])
	least := time.Since(opened)
	f.wantStates("back", "paused record", "at work ", "at work ")
	var last cameBack
	for ok := false; !ok; last, ok = f.s.fences.last(way.Name) {
		time.Sleep(50 * time.Millisecond)
	}
	t.Log("overlap", last.overlap)
	// It begins with the last try before the first answer, and await polls.
	if last.paused != 1 || last.overlap < least-fencePollDown || last.overlap > 10*time.Second {
		t.Errorf("%d paused, overlap %s, and it took at least %s", last.paused, last.overlap, least)
	}
	// a record that is written while it answers
	f.claim(f.store, units[2], elsewhere, 0)
	await(units[2])
	f.wantStates("a new record", "paused record", "at work ", "paused record")
}
