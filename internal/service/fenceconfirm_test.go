package service

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// stuck is a folder of a network file system whose server is away: reads of ownership records
// return when it is back, whatever their context says.
type stuck struct {
	bucket.Bucket
	back  chan struct{}
	reads atomic.Int64
}

func (s *stuck) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasPrefix(key, "owners/") {
		s.reads.Add(1)
		<-s.back
	}
	return s.Bucket.Get(context.WithoutCancel(ctx), key)
}

// TestI1AStoreThatHangsDelaysNoPause: the last read of the records had a limit that a folder of a
// network file system does not know, so that a management cluster that came back was not fenced.
func TestI1AStoreThatHangsDelaysNoPause(t *testing.T) {
	b := &stuck{Bucket: directory.New(t.TempDir()), back: make(chan struct{})}
	st, err := store.Open(t.Context(), store.Options{Bucket: b.Bucket, Plain: true, Create: true})
	if err == nil {
		err = ownership.Claim(t.Context(), st, ownership.Request{WorkloadID: "w-1", Workload: "ns/w-1",
			To: object.Side{Name: "there", UID: "there"}, Operation: "0123456789ab"})
	}
	if err == nil {
		st, err = store.Open(t.Context(), store.Options{Bucket: b, Plain: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	w := (&fenceWatch{s: New(Config{})}).of(kube.Options{})
	o, ids := locationOwners{store: st}, []string{"w-1"}
	for range 2 { // the second one must not take another thread of the process
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if got := w.readNow(ctx, "default", o, ids); len(got) > 0 || ctx.Err() == nil && b.reads.Load() == 0 {
			t.Errorf("it read %v, before the limit: %t", got, ctx.Err() == nil)
		}
		cancel()
	}
	if n := b.reads.Load(); n != 1 {
		t.Errorf("%d reads hang", n)
	}
	close(b.back)
	<-w.confirming["default"].ended
	if got := w.readNow(t.Context(), "default", o, ids)["w-1"]; got.By.UID != "there" {
		t.Errorf("once it is back: %+v", got)
	}
}

// TestAProgramThatFetchesCredentialsAndHangsIsStartedOnce: the watch waits for it no longer than
// for an answer, and asks again each second.
func TestAProgramThatFetchesCredentialsAndHangsIsStartedOnce(t *testing.T) {
	folder := t.TempDir()
	started := filepath.Join(folder, "started")
	o := kube.Options{Name: "a", KubeconfigFile: filepath.Join(folder, "kubeconfig")}
	text := fmt.Sprintf(`{"current-context":"a","clusters":[{"name":"a","cluster":{"server":
		"https://127.0.0.1:1"}}],"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
		"users":[{"name":"a","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1",
		"command":"sh","args":["-c","echo >> %s; sleep 1"],"interactiveMode":"Never"}}}]}`, started)
	if err := os.WriteFile(o.KubeconfigFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := (&fenceWatch{s: New(Config{})}).of(o)
	var first *call[*kube.Mgmt]
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if m, _, err := w.connect(ctx); err == nil || m != nil || ctx.Err() == nil {
			t.Errorf("it returned %v, %v, before the limit: %t", m, err, ctx.Err() == nil)
		}
		cancel()
		if first = cmp.Or(first, w.asking); w.asking != first {
			t.Error("a second try was begun beside it")
		}
	}
	if got, err := os.ReadFile(started); err != nil || bytes.Count(got, []byte("\n")) != 1 {
		t.Errorf("it was started %d times, %v", bytes.Count(got, []byte("\n")), err)
	}
	<-first.ended
	// What it said says nothing of now: its failure would count as one of this moment.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, began, _ := w.connect(ctx); w.asking == first || time.Since(began) > time.Second {
		t.Errorf("the answer of a try that began %s ago", time.Since(began))
	}
	<-w.asking.ended
}
