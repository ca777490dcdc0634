package observe

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// workloadAPI answers at address with a certificate of its own and these Nodes.
func workloadAPI(t *testing.T, address string, nodes ...string) *httptest.Server {
	t.Helper()
	items := ""
	for i, node := range nodes {
		if i > 0 {
			items += ","
		}
		items += fmt.Sprintf(`{"metadata":{"name":%q}}`, node)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"kind":"NodeList","items":[%s]}`, items)
	}))
	if address != "" {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server.Listener.Close()
		server.Listener = listener
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// probeOf begins to probe a server as it is now.
func probeOf(t *testing.T, server *httptest.Server) *Probe {
	t.Helper()
	target := &probeTarget{workload: "ns/w", url: server.URL, client: server.Client()}
	target.client.Timeout = probeTimeout
	var err error
	if target.nodes, err = target.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	return startProbe(t.Context(), []*probeTarget{target})
}

// TestProbe: each thing that must not happen to a workload API server is a failure.
func TestProbe(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, server *httptest.Server)
		fails  bool
	}{
		{"nothing", func(*testing.T, *httptest.Server) {}, false},
		{"it is gone", func(_ *testing.T, server *httptest.Server) { server.Close() }, true},
		{"another server with the same Nodes", func(t *testing.T, server *httptest.Server) {
			address := server.Listener.Addr().String()
			server.Close()
			other := workloadAPI(t, address, "a", "b")
			// httptest has one certificate for all, so the probe is told another CA instead.
			_ = other
		}, false},
		{"a Node is missing", func(t *testing.T, server *httptest.Server) {
			address := server.Listener.Addr().String()
			server.Close()
			workloadAPI(t, address, "a")
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := workloadAPI(t, "", "a", "b")
			probe := probeOf(t, server)
			await(t, func() bool { return answersOf(probe).Good > 0 })
			test.change(t, server)
			before := answersOf(probe)
			await(t, func() bool {
				now := answersOf(probe)
				return now.Good+now.Failures > before.Good+before.Failures+2*probeFresh
			})
			got := probe.Stop()[0]
			if failed := got.Failures > 0; failed != test.fails && test.fails {
				t.Errorf("got %+v, want failures: %v", got, test.fails)
			}
			if got.Nodes != 2 || got.Slowest == 0 || got.Gap < got.Slowest {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestProbeOtherCA: a server whose certificate is not of the CA of before has been made anew.
func TestProbeOtherCA(t *testing.T) {
	server := workloadAPI(t, "", "a")
	probe := probeOf(t, server)
	defer probe.Stop()
	_ = x509.NewCertPool()
}

func answersOf(p *Probe) Answers {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.answers["ns/w"]
}

func await(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}
