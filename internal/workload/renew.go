package workload

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
)

// Renew returns a kubeconfig for the same server with a new client certificate, as the controllers
// of Cluster API make it (cluster-api v1.14, util/kubeconfig): for the administrator, valid for a
// year. name is that of the workload cluster, ca and key are its CA in PEM, and algorithm is the
// encryptionAlgorithm of its kubeadm configuration, "" for RSA of 2048 bits. Errors hold no byte of
// the kubeconfig or the CA.
func (k *Kubeconfig) Renew(name string, ca, key []byte, algorithm string) ([]byte, error) {
	if len(key) == 0 {
		return nil, errors.New("the key of its CA is not in the Secret of the CA")
	}
	cert, err := certs.DecodeCertPEM(ca)
	if err != nil {
		return nil, errors.New("its CA is no certificate")
	}
	signer, err := certs.DecodePrivateKeyPEM(key)
	if err != nil {
		return nil, errors.New("the key of its CA cannot be read")
	}
	trusted := slices.ContainsFunc(k.ca, func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawSubjectPublicKeyInfo, cert.RawSubjectPublicKeyInfo)
	})
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !trusted:
		return nil, errors.New("it trusts another CA than that of the workload cluster")
	case !ok || !public.Equal(signer.Public()):
		return nil, errors.New("the key of its CA does not belong to the CA")
	case time.Now().After(cert.NotAfter):
		return nil, errors.New("its CA has expired, too")
	}
	config, err := kubeconfig.New(name, k.Server(), cert, signer,
		kubeconfig.KeyEncryptionAlgorithm(algorithm))
	if err != nil {
		return nil, errors.New("its CA signs no client certificate, or the key algorithm is not known")
	}
	config.Clusters[name].TLSServerName = k.serverName
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, errors.New("the new one cannot be written")
	}
	return text, nil
}

// IsExpired reports whether the client certificate is of no use any more.
func (k *Kubeconfig) IsExpired(now time.Time) bool {
	expires := k.Expires()
	return !expires.IsZero() && expires.Before(now)
}

// Renews reports whether k is a renewed old: it leads to the same server, trusts a CA of old, and
// has not expired as old has.
func (k *Kubeconfig) Renews(old *Kubeconfig, now time.Time) bool {
	return k.Server() == old.Server() && old.IsExpired(now) && !k.IsExpired(now) && k.FitsCA(old.ca)
}
