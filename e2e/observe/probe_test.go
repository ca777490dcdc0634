package observe

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// workloadAPI is a server with a CA and Nodes of its own. It listens at
// address, or anywhere. It stands for a workload API server that was destroyed
// and made anew, which the lab's cloud does not do when the product is right.
type workloadAPI struct {
	*httptest.Server
	roots *x509.CertPool
	nodes *atomic.Value // its answer
}

func (s workloadAPI) has(nodes ...string) {
	var items []string
	for _, node := range nodes {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q}}`, node))
	}
	s.nodes.Store(`{"kind":"NodeList","items":[` + strings.Join(items, ",") + `]}`)
}

func serve(t *testing.T, address string, nodes ...string) workloadAPI {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	s := workloadAPI{Server: httptest.NewUnstartedServer(nil), roots: x509.NewCertPool(), nodes: &atomic.Value{}}
	s.has(nodes...)
	s.roots.AppendCertsFromPEM(certPEM)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.nodes.Load()) })
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if address != "" {
		s.Listener.Close()
		if s.Listener, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestProbe: each thing that must not become of a workload API server is a failure.
func TestProbe(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, s workloadAPI)
		want   string // in the first failure
	}{
		{"nothing", func(*testing.T, workloadAPI) {}, ""},
		{"gone", func(_ *testing.T, s workloadAPI) { s.Close() }, "connection refused"},
		{"made anew, with the Nodes of before", func(t *testing.T, s workloadAPI) {
			s.Close()
			serve(t, s.Listener.Addr().String(), "a", "b")
		}, "x509"},
		{"another Node", func(_ *testing.T, s workloadAPI) {
			s.has("a", "c")
		}, "its Nodes were"},
		{"a Node less", func(_ *testing.T, s workloadAPI) {
			s.has("a")
		}, "its Nodes were"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "", "a", "b")
			target := &probeTarget{workload: "ns/w", url: s.URL, client: clientFor(&tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12})}
			var err error
			if target.nodes, err = target.ask(t.Context()); err != nil {
				t.Fatal(err)
			}
			probe := startProbe(t.Context(), []*probeTarget{target})
			asked := func(times int) Answers {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
					probe.mu.Lock()
					now := *probe.answers["ns/w"]
					probe.mu.Unlock()
					if now.Good+now.Failures >= times {
						return now
					}
					if time.Now().After(deadline) {
						t.Fatalf("it does not ask: %+v", now)
					}
				}
			}
			before := asked(2)
			test.change(t, s)
			asked(before.Good + before.Failures + probeFresh + 1)
			got := probe.Stop()[0]
			if before.Failures > 0 || got.Failures > 0 != (test.want != "") || !strings.Contains(got.First, test.want) {
				t.Errorf("got %+v, want a failure with %q", got, test.want)
			}
			if got.Nodes != 2 || got.Slowest == 0 || got.Gap < got.Slowest {
				t.Errorf("got %+v", got)
			}
		})
	}
}
