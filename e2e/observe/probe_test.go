package observe

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// workloadAPI plays a workload API server that is destroyed and created again: its Nodes and its CA
// can be replaced while it serves.
type workloadAPI struct {
	*httptest.Server
	nodes atomic.Pointer[string]
	tls   atomic.Pointer[tls.Config]
}

func serve(t *testing.T) (*workloadAPI, *x509.CertPool) {
	t.Helper()
	s := &workloadAPI{}
	s.has("a", "b")
	roots := s.certify(t)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, *s.nodes.Load())
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls.Load(), nil },
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, roots
}

// has sets its Nodes.
func (s *workloadAPI) has(nodes ...string) {
	var items []string
	for _, node := range nodes {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q}}`, node))
	}
	answer := `{"kind":"NodeList","items":[` + strings.Join(items, ",") + `]}`
	s.nodes.Store(&answer)
}

// certify gives it a new CA.
func (s *workloadAPI) certify(t *testing.T) *x509.CertPool {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	s.tls.Store(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return roots
}

// TestProbeReportsEachWayToLoseAWorkload: a workload API server that is gone, has another CA or
// other Nodes fails the probe.
func TestProbeReportsEachWayToLoseAWorkload(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, s *workloadAPI)
		want   string // in the first failure
	}{
		{"nothing", func(*testing.T, *workloadAPI) {}, ""},
		{"gone", func(_ *testing.T, s *workloadAPI) { s.Close() }, "connection refused"},
		{"created again, with the same Nodes", func(t *testing.T, s *workloadAPI) {
			s.certify(t)
		}, "x509"},
		{"another Node", func(_ *testing.T, s *workloadAPI) {
			s.has("a", "c")
		}, "its Nodes were"},
		{"a Node less", func(_ *testing.T, s *workloadAPI) {
			s.has("a")
		}, "its Nodes were"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, roots := serve(t)
			target := &probeTarget{workload: "ns/w", url: s.URL,
				client: clientFor(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})}
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
			// Making a certificate takes seconds on a busy machine: only requests after it count.
			changed := asked(2)
			asked(changed.Good + changed.Failures + probeFresh + 1)
			got := probe.Stop()[0]
			if before.Failures > 0 || got.Failures > 0 != (test.want != "") ||
				!strings.Contains(got.First, test.want) {
				t.Errorf("got %+v, want a failure with %q", got, test.want)
			}
			if got.Nodes != 2 || got.Slowest == 0 || got.Gap < got.Slowest {
				t.Errorf("got %+v", got)
			}
		})
	}
}
