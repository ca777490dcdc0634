package fleet

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKeys bounds the pool of RSA keys of a bare fleet. Cluster API makes five
// per workload cluster, a tenth of a second each; a large fleet takes them from
// the pool again and again, in other combinations. Certificates are always new.
const maxKeys = 256

// keyPool is a set of RSA keys, generated once and stored in a file.
type keyPool []*rsa.PrivateKey

// newKeyPool returns n keys, at most maxKeys, from the file in dir and new
// ones. With dir empty all are new.
func newKeyPool(dir string, n int) (keyPool, error) {
	n = min(n, maxKeys)
	path := filepath.Join(dir, "rsa-2048.pem")
	var pool keyPool
	if dir != "" {
		data, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("read keys: %w", err)
		}
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("read keys: %w", err)
			}
			pool = append(pool, key)
		}
	}
	if len(pool) >= n {
		return pool, nil
	}
	have := len(pool)
	pool = append(pool, make(keyPool, n-have)...)
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i := have; i < n; i++ {
		group.Go(func() (err error) {
			pool[i], err = rsa.GenerateKey(rand.Reader, 2048)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	if dir == "" {
		return pool, nil
	}
	var out []byte
	for _, key := range pool {
		out = append(out, keyPEM(key)...)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		return nil, fmt.Errorf("write keys: %w", err)
	}
	return pool, nil
}

// certificates are the content of a workload cluster's certificate Secrets:
// role ("ca", "etcd", "proxy", "sa", "kubeconfig") → data key → text.
type certificates struct {
	data   map[string]map[string]string
	caHash string // as `kubeadm join` wants it
}

// newCertificates makes them as Cluster API does, with keys that match.
// pick chooses keys of the pool.
func newCertificates(pool keyPool, pick func(n int) int, workload, server string) (*certificates,
	error) {
	c := &certificates{data: map[string]map[string]string{}}
	var ca *x509.Certificate
	var caKey *rsa.PrivateKey
	for _, role := range []string{"ca", "etcd", "proxy"} {
		key := pool[pick(len(pool))]
		cert, err := sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: "kubernetes"},
			KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature |
				x509.KeyUsageCertSign,
			NotAfter:              time.Now().AddDate(10, 0, 0),
			BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		}, nil, key, key)
		if err != nil {
			return nil, err
		}
		c.data[role] = map[string]string{"tls.crt": certPEM(cert), "tls.key": keyPEM(key)}
		if role == "ca" {
			ca, caKey = cert, key
		}
	}
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	c.caHash = "sha256:" + hex.EncodeToString(sum[:])

	sa := pool[pick(len(pool))]
	public, err := x509.MarshalPKIXPublicKey(&sa.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("marshal public key: %w", err)
	}
	c.data["sa"] = map[string]string{
		"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
		"tls.key": keyPEM(sa),
	}
	key := pool[pick(len(pool))]
	cert, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotAfter:    time.Now().AddDate(1, 0, 0),
	}, ca, key, caKey)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := workloadKubeconfig(workload, server, ca, cert, key)
	if err != nil {
		return nil, err
	}
	c.data["kubeconfig"] = map[string]string{"value": kubeconfig}
	return c, nil
}

func workloadKubeconfig(workload, server string, ca, cert *x509.Certificate, key *rsa.PrivateKey) (
	string, error) {
	user := workload + "-admin"
	config := clientcmdapi.NewConfig()
	config.Clusters[workload] = &clientcmdapi.Cluster{Server: server,
		CertificateAuthorityData: []byte(certPEM(ca))}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: []byte(certPEM(cert)),
		ClientKeyData: []byte(keyPEM(key))}
	config.Contexts[user+"@"+workload] = &clientcmdapi.Context{Cluster: workload, AuthInfo: user}
	config.CurrentContext = user + "@" + workload
	text, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("marshal kubeconfig: %w", err)
	}
	return string(text), nil
}

// sign signs template for subject's key with the parent's; without a parent the certificate signs
// itself.
func sign(template, parent *x509.Certificate, subject, signer *rsa.PrivateKey) (*x509.Certificate,
	error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-5 * time.Minute)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &subject.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return cert, nil
}

func certPEM(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

func keyPEM(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}
