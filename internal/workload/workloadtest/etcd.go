package workloadtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/spdystream"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"

	"github.com/mgmtd/mgmtd/internal/workload"
)

// Etcd is the etcd of a workload cluster. Each of its Pods gives the same answer.
type Etcd struct {
	etcdserverpb.UnimplementedClusterServer
	conns chan net.Conn
	done  chan struct{}

	mu     sync.Mutex
	answer *etcdserverpb.MemberListResponse
	silent map[string]bool
	asked  int
}

// ServeEtcd has the API server forward to an etcd whose certificate is of ca, and that accepts
// client certificates of ca.
func (s *Server) ServeEtcd(t testing.TB, ca *CA, members ...workload.EtcdMember) *Etcd {
	t.Helper()
	e := &Etcd{conns: make(chan net.Conn), done: make(chan struct{})}
	e.Set(members...)
	key := newKey(t)
	cert := sign(t, &x509.Certificate{SerialNumber: big.NewInt(4), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca.cert, key, ca.key)
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}})))
	etcdserverpb.RegisterClusterServer(server, e)
	served := make(chan error, 1)
	go func() { served <- server.Serve(e) }()
	t.Cleanup(func() {
		server.Stop()
		// A test may end before the server has begun.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.etcd = e
	return e
}

// Set sets the members.
func (e *Etcd) Set(members ...workload.EtcdMember) {
	answer := &etcdserverpb.MemberListResponse{}
	for i, m := range members {
		answer.Members = append(answer.Members, &etcdserverpb.Member{ID: uint64(i + 1), Name: m.Name,
			IsLearner: m.Learner})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

// Silence has the etcd of some Pods accept connections and never answer.
func (e *Etcd) Silence(pods ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silent = map[string]bool{}
	for _, pod := range pods {
		e.silent[pod] = true
	}
}

// Asked returns how often etcd answered.
func (e *Etcd) Asked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

// MemberList answers as etcd does. One that is not linearizable may be of the past.
func (e *Etcd) MemberList(_ context.Context, r *etcdserverpb.MemberListRequest) (
	*etcdserverpb.MemberListResponse, error) {
	if !r.GetLinearizable() {
		return nil, errors.New("the answer of one member is not wanted")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	return e.answer, nil
}

// forwardTo returns the Pod to which a request asks to forward; "" when it does not.
func forwardTo(r *http.Request) string {
	pod, forward := strings.CutSuffix(strings.TrimPrefix(r.URL.Path,
		"/api/v1/namespaces/kube-system/pods/"), "/portforward")
	if !forward || r.Method != http.MethodPost || r.Header.Get("Upgrade") != "SPDY/3.1" ||
		r.Header.Get("X-Stream-Protocol-Version") != "portforward.k8s.io" {
		return ""
	}
	return pod
}

// hijacked is a connection of which the server may have read some bytes already.
type hijacked struct {
	net.Conn
	buffered io.Reader
}

func (h *hijacked) Read(p []byte) (int, error) { return h.buffered.Read(p) }

// forward serves the streams of a port-forward.
func (e *Etcd) forward(w http.ResponseWriter, pod string) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "SPDY/3.1")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	session, err := spdystream.NewConnection(&hijacked{conn, buffered}, true)
	if err != nil {
		return
	}
	e.mu.Lock()
	silent := e.silent[pod]
	e.mu.Unlock()
	session.Serve(func(stream *spdystream.Stream) {
		// A stream without a reply waits for that for good when it is written to.
		if stream.SendReply(http.Header{}, false) != nil || silent ||
			stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeData ||
			stream.Headers().Get(corev1.PortHeader) != "2379" {
			return
		}
		select {
		case e.conns <- stream:
		case <-e.done:
		}
	})
}

// Etcd is the listener of its server.
var _ net.Listener = (*Etcd)(nil)

// Accept returns the next forwarded connection.
func (e *Etcd) Accept() (net.Conn, error) {
	select {
	case c := <-e.conns:
		return c, nil
	case <-e.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (e *Etcd) Close() error {
	close(e.done)
	return nil
}

// Addr is of no use: etcd is reached through the API server.
func (e *Etcd) Addr() net.Addr { return &net.TCPAddr{} }
