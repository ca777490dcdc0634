package workload

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is what is used of a kubeconfig of a snapshot.
type Kubeconfig struct {
	server     *url.URL
	serverName string // of the certificate, when it is not that of server
	ca         []*x509.Certificate
	token      string
	client     *tls.Certificate
}

// ParseEncoded is Parse of the value of a Secret, in base64.
func ParseEncoded(value string) (*Kubeconfig, error) {
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(text) == 0 {
		return nil, errors.New("it holds no kubeconfig")
	}
	return Parse(text)
}

// Parse reduces a kubeconfig to its server, CA and inline credentials. It is an error when the
// kubeconfig relies on anything else: exec and auth providers would run programs of the snapshot's
// choice on this host, and file paths and proxies would lead elsewhere. Errors hold no byte of it.
func Parse(text []byte) (*Kubeconfig, error) {
	c, err := clientcmd.Load(text)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig")
	}
	kctx := c.Contexts[c.CurrentContext]
	if kctx == nil || c.Clusters[kctx.Cluster] == nil || c.AuthInfos[kctx.AuthInfo] == nil {
		return nil, errors.New("its current context is incomplete")
	}
	cluster, user := c.Clusters[kctx.Cluster], c.AuthInfos[kctx.AuthInfo]
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" || isUnsafe(cluster, user) {
		return nil, errors.New("it names programs, files, a proxy or a server without TLS, which are " +
			"never used from a snapshot")
	}
	server.User, server.RawQuery, server.Fragment = nil, "", ""
	k := &Kubeconfig{server: server, serverName: cluster.TLSServerName, token: user.Token,
		ca: Certificates(cluster.CertificateAuthorityData)}
	if len(cluster.CertificateAuthorityData) > 0 && len(k.ca) == 0 {
		return nil, errors.New("its CA is no certificate")
	}
	if len(user.ClientCertificateData) > 0 {
		pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
		if err != nil {
			return nil, errors.New("its client certificate and key do not belong together")
		}
		k.client = &pair
	}
	return k, nil
}

func isUnsafe(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) bool {
	return user.Exec != nil || user.AuthProvider != nil || user.ClientCertificate != "" ||
		user.ClientKey != "" || user.TokenFile != "" || cluster.CertificateAuthority != "" ||
		cluster.ProxyURL != "" || cluster.InsecureSkipTLSVerify
}

// Certificates returns the certificates of a PEM text; those that cannot be read are left out.
func Certificates(text []byte) []*x509.Certificate {
	var list []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return list
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			list = append(list, c)
		}
	}
}

// Server is the URL of the API server.
func (k *Kubeconfig) Server() string { return k.server.String() }

// CA identifies the keys of the CA certificates.
func (k *Kubeconfig) CA() []string { return KeyIDs(k.ca) }

// KeyIDs returns a hash of the public key of each certificate, sorted.
func KeyIDs(certificates []*x509.Certificate) []string {
	ids := make([]string, 0, len(certificates))
	for _, c := range certificates {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		ids = append(ids, hex.EncodeToString(sum[:]))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Expires returns when the client certificate expires; the zero time when there is none.
func (k *Kubeconfig) Expires() time.Time {
	if k.client == nil || k.client.Leaf == nil {
		return time.Time{}
	}
	return k.client.Leaf.NotAfter
}

// FitsCA reports whether the CA of a workload cluster fits the kubeconfig: it is one of those that
// the kubeconfig trusts, or signed the client certificate. One with neither, which trusts the CAs
// of the system and carries a token, says nothing of that and fits.
func (k *Kubeconfig) FitsCA(ca []*x509.Certificate) bool {
	if len(k.ca) == 0 && k.client == nil {
		return true
	}
	for _, own := range k.ca {
		if slices.ContainsFunc(ca, func(c *x509.Certificate) bool {
			return bytes.Equal(c.RawSubjectPublicKeyInfo, own.RawSubjectPublicKeyInfo)
		}) {
			return true
		}
	}
	return k.client != nil && k.client.Leaf != nil && slices.ContainsFunc(ca,
		func(c *x509.Certificate) bool { return k.client.Leaf.CheckSignatureFrom(c) == nil })
}

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}

// printable cuts a text of a workload cluster to one line. A provider ID has up to 512 characters
// (cluster-api v1.14, api/core/v1beta2/machine_types.go), and one that was cut is another one.
func printable(s string) string {
	const most = 1024
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s[:min(len(s), most)])
	return s
}
