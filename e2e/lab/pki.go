package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pki is the certificate authority of one management cluster: it signs the
// serving certificates of the API server and the webhooks and the client
// certificate of the kubeconfig.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newPKI makes the authority and everything it signs in dir:
// ca.crt and ca.key, tls.crt and tls.key (servers), sa.key (service account tokens).
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	p := &pki{dir: dir, key: key, cert: &x509.Certificate{
		Subject:               pkix.Name{CommonName: "mgmtd-lab"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}}
	caPEM, err := p.sign(p.cert, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	caKeyPEM, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	if p.cert, err = parseCertificate(caPEM); err != nil {
		return nil, err
	}
	tlsPEM, tlsKeyPEM, err := p.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	_, saPEM, err := p.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "service-accounts"}})
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"ca.crt": caPEM, "ca.key": caKeyPEM, "tls.crt": tlsPEM,
		"tls.key": tlsKeyPEM, "sa.key": saPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return p, nil
}

// issue makes a key and a certificate for it.
func (p *pki) issue(template *x509.Certificate) (cert, keyText []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	if cert, err = p.sign(template, &key.PublicKey); err != nil {
		return nil, nil, err
	}
	keyText, err = keyPEM(key)
	return cert, keyText, err
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("marshal key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func (p *pki) sign(template *x509.Certificate, public *ecdsa.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	template.SerialNumber = serial
	// An hour back: clocks of a restored virtual machine may step.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.AddDate(1, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, public, p.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// writeKubeconfig writes a kubeconfig with full rights, everything inline.
func (p *pki) writeKubeconfig(path, name, server string) error {
	cert, key, err := p.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "lab-admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: p.caPEM()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert,
		ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func (p *pki) caPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})
}

func parseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return cert, nil
}
