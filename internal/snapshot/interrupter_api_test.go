//go:build api

package snapshot_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// How a watch ends before it is through.
const (
	breaksBefore  = iota // the connection breaks where an event was to come
	breaksInside         // in the middle of an event
	breaksAfter          // after it
	expiresAtOnce        // 410 in place of an answer
	expiresLater         // 410 in place of an event
)

// interrupter stands between a client and an API server, and ends watches at chosen events.
type interrupter struct {
	server    *httptest.Server
	transport http.RoundTripper
	host      string

	mu      sync.Mutex
	endings []ending
	events  int             // of all watches, since they were set; bookmarks are none
	broken  map[string]bool // paths whose watch broke off, and was not begun again
	expired map[string]bool // paths whose watch got 410

	restarts int
}

// ending is what becomes of the watch that brings an event.
type ending struct{ event, how int }

// newInterrupter connects to server 0 through an interrupter.
func newInterrupter(t *testing.T) (*interrupter, *kube.Mgmt) {
	t.Helper()
	file := servers.Options(0).KubeconfigFile
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	p := &interrupter{host: strings.TrimPrefix(config.Host, "https://")}
	if p.transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.ErrorLog = nil
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	through, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range through.Clusters {
		server.Server, server.CertificateAuthority = p.server.URL, ""
		server.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: p.server.Certificate().Raw})
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*through, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := kube.Connect(t.Context(), kube.Options{Name: servers.Options(0).Name,
		KubeconfigFile: path})
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}

// set says how watches end from now on; none lets them be.
func (p *interrupter) set(list ...ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endings, p.events, p.broken, p.expired = list, 0, map[string]bool{}, map[string]bool{}
	p.restarts = 0
}

// restarted reports whether a watch broke off and was begun again. One that breaks after its last
// event need not be.
func (p *interrupter) restarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts > 0
}

// gone are the paths whose watch got 410.
func (p *interrupter) gone() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.expired)
}

// begun records a watch and reports whether it is to get 410: the first one that comes while one of
// them has to.
func (p *interrupter) begun(path string) (expired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken[path] {
		p.restarts++
		delete(p.broken, path)
	}
	for i, e := range p.endings {
		if e.how == expiresAtOnce && p.events >= e.event {
			p.endings = append(p.endings[:i:i], p.endings[i+1:]...)
			p.expired[path] = true
			return true
		}
	}
	return false
}

// ends returns how a watch ends with this event, or -1.
func (p *interrupter) ends(path string, event []byte) int {
	if gjson.GetBytes(event, "type").String() == "BOOKMARK" {
		return -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events++
	for _, e := range p.endings {
		if e.how == expiresAtOnce || e.event != p.events {
			continue
		}
		if e.how == expiresLater {
			p.expired[path] = true
		} else {
			p.broken[path] = true
		}
		return e.how
	}
	return -1
}

const expiredStatus = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}`

func (p *interrupter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	watch := r.URL.Query().Get("watch") == "true"
	if watch && p.begun(r.URL.Path) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, expiredStatus)
		return
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = "https", p.host, p.host, ""
	response, err := p.transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	if !watch || response.StatusCode != http.StatusOK {
		if _, err := io.Copy(w, response.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	p.pass(r.Context(), w, r.URL.Path, response.Body)
}

// pass gives the events of a watch on, up to where it ends.
func (p *interrupter) pass(ctx context.Context, w http.ResponseWriter, path string,
	body io.Reader) {
	give := func(part []byte) {
		_, _ = w.Write(part)
		_ = http.NewResponseController(w).Flush()
	}
	give(nil) // the head: the server's answer has come
	for lines := bufio.NewReader(body); ctx.Err() == nil; {
		event, err := lines.ReadBytes('\n')
		if err != nil {
			return // the server has ended it
		}
		switch p.ends(path, event) {
		case breaksBefore:
			panic(http.ErrAbortHandler)
		case breaksInside:
			give(event[:len(event)/2])
			panic(http.ErrAbortHandler)
		case breaksAfter:
			give(event)
			panic(http.ErrAbortHandler)
		case expiresLater:
			give(fmt.Appendf(nil, `{"type":"ERROR","object":%s}`+"\n", expiredStatus))
			return
		default:
			give(event)
		}
	}
}
