// Package workloadtest has an API server of a workload cluster in memory, for tests of what is read
// of it.
package workloadtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mgmtd/mgmtd/internal/workload"
)

// CA is the CA of a workload cluster.
type CA struct {
	Cert, Key []byte // PEM

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{}
	ca.cert, ca.key = nil, newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true,
		Subject: pkix.Name{CommonName: "kubernetes"}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	ca.cert = sign(t, template, template, ca.key, ca.key)
	ca.Cert, ca.Key = certPEM(ca.cert), keyPEM(t, ca.key)
	return ca
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey,
) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func keyPEM(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// Server is the API server of a workload cluster.
type Server struct {
	URL string
	CA  *CA

	mu      sync.Mutex
	uid     string
	nodes   []workload.Node
	members []string
	etcd    *Etcd
	// Answer, when set, answers in place of the server.
	Answer   http.HandlerFunc
	requests []*http.Request
}

// New starts a server whose certificate is of ca. It accepts client certificates of ca.
func New(t testing.TB, ca *CA) *Server {
	t.Helper()
	s := &Server{CA: ca, uid: "workload"}
	key := newKey(t)
	cert := sign(t, &x509.Certificate{SerialNumber: big.NewInt(2),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}, ca.cert, key, ca.key)
	server := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Set sets what the server has: its Nodes, and the names of the Nodes that have a Pod of etcd.
func (s *Server) Set(uid string, nodes []workload.Node, members ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uid, s.nodes, s.members = uid, nodes, members
}

// Requests returns the requests that came with an accepted certificate or a token.
func (s *Server) Requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Kubeconfig returns a kubeconfig of the server whose client certificate expires at a time.
func (s *Server) Kubeconfig(t testing.TB, expires time.Time) []byte {
	t.Helper()
	key := newKey(t)
	cert := sign(t, &x509.Certificate{SerialNumber: big.NewInt(3), NotBefore: expires.Add(-time.Hour),
		NotAfter: expires, Subject: pkix.Name{CommonName: "admin"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, s.CA.cert, key, s.CA.key)
	text, err := clientcmd.Write(clientcmdapi.Config{CurrentContext: "c",
		Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "k", AuthInfo: "u"}},
		Clusters: map[string]*clientcmdapi.Cluster{"k": {Server: s.URL,
			CertificateAuthorityData: s.CA.Cert}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: certPEM(cert),
			ClientKeyData: keyPEM(t, key)}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].CheckSignatureFrom(s.CA.cert) !=
		nil || r.TLS.PeerCertificates[0].NotAfter.Before(time.Now()) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.requests = append(s.requests, r)
	if s.Answer != nil {
		s.Answer(w, r)
		return
	}
	if pod := forwardTo(r); pod != "" && s.etcd != nil {
		s.mu.Unlock()
		defer s.mu.Lock()
		s.etcd.forward(w, pod)
		return
	}
	items := []any{}
	switch r.URL.Path {
	case "/api/v1/namespaces/kube-system":
		answer(w, map[string]any{"kind": "Namespace", "metadata": map[string]any{"uid": s.uid}})
		return
	case "/api/v1/nodes":
		for _, n := range s.nodes {
			labels := map[string]any{}
			if n.ControlPlane {
				labels["node-role.kubernetes.io/control-plane"] = ""
			}
			items = append(items, map[string]any{"metadata": map[string]any{"name": n.Name,
				"labels": labels}, "spec": map[string]any{"providerID": n.ProviderID}})
		}
	case "/api/v1/namespaces/kube-system/pods":
		for _, m := range s.members {
			items = append(items, map[string]any{"metadata": map[string]any{"name": "etcd-" + m}})
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer(w, map[string]any{"kind": "List", "items": items})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that went away reads nothing
}
