package live

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// front is the API server of a workload cluster as its clients reach it. That of the lab accepts
// every client certificate; front verifies them as a kube-apiserver does (k8s.io/apiserver v0.36.3,
// pkg/authentication/request/x509): one that has expired is answered with 401.
type front struct {
	url     string
	refused atomic.Int64 // requests
}

// startFront puts a front before the API server at a URL. Its certificate is of the CA of the
// workload cluster, and it accepts client certificates of that CA. It ends with the test.
func startFront(t *testing.T, server string, ca *authority) (*front, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	certificate, err := ca.serving()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	f := &front{}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // watches
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
			MinVersion: tls.VersionTLS12}},
		// A client that has ended its request is no error.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		if !signedBy(roots, r.TLS.PeerCertificates) {
			f.refused.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure",`+
				`"reason":"Unauthorized","message":"Unauthorized","code":401}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	listener.TLS = &tls.Config{Certificates: []tls.Certificate{certificate},
		ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	listener.StartTLS()
	f.url = listener.URL
	t.Cleanup(func() {
		_ = listener.Listener.Close()     // no new connections
		listener.CloseClientConnections() // watches
		listener.Close()
	})
	return f, nil
}

// signedBy reports whether the first certificate is that of a client, valid now, of a CA.
func signedBy(roots *x509.CertPool, certificates []*x509.Certificate) bool {
	if len(certificates) == 0 {
		return false
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{Roots: roots,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// authority is the CA of a workload cluster.
type authority struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
}

// parseAuthority reads the CA from the PEM texts of its Secret.
func parseAuthority(cert, key []byte) (*authority, error) {
	certBlock, _ := pem.Decode(cert)
	keyBlock, _ := pem.Decode(key)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("the CA is not PEM")
	}
	a := &authority{}
	var err error
	if a.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return nil, err
	}
	a.key, err = x509.ParsePKCS1PrivateKey(keyBlock.Bytes)
	return a, err
}

// issue signs a certificate, which is valid until a time.
func (a *authority) issue(template x509.Certificate, key crypto.Signer, until time.Time) ([]byte,
	error) {
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(7),
		until.Add(-24*time.Hour), until
	return x509.CreateCertificate(rand.Reader, &template, a.cert, key.Public(), a.key)
}

// serving issues the certificate of a server on this host.
func (a *authority) serving() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := a.issue(x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, key,
		time.Now().Add(23*time.Hour))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// expiredClient issues the certificate of an administrator that expired a day ago, and its key.
func (a *authority) expiredClient() (cert, key []byte, err error) {
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, err
	}
	der, err := a.issue(x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes-admin",
		Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, own,
		time.Now().Add(-24*time.Hour))
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(own)}), nil
}
