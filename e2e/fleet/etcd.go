package fleet

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// externalEtcd is the etcd of a control plane that does not manage its members, with the paths that
// Cluster API documents (docs/book/src/tasks/external-etcd.md at v1.14.0). Nothing listens at the
// endpoint: in the lab no API server of a machine uses it.
func externalEtcd() fields {
	return fields{"external": fields{
		"endpoints": []any{"https://127.0.0.1:2379"},
		"caFile":    "/etc/kubernetes/pki/etcd/ca.crt",
		"certFile":  "/etc/kubernetes/pki/apiserver-etcd-client.crt",
		"keyFile":   "/etc/kubernetes/pki/apiserver-etcd-client.key",
	}}
}

// externalEtcdSecrets are the Secrets that the author of a workload cluster with an etcd of its own
// writes: the CA, whose key the in-memory provider needs, and the certificate of the API servers.
func externalEtcdSecrets(namespace, workload string) ([]*unstructured.Unstructured, error) {
	var keys [2]*rsa.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return nil, fmt.Errorf("make key of etcd: %w", err)
		}
	}
	ca, err := sign(&x509.Certificate{Subject: pkix.Name{CommonName: "etcd-ca"},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		NotAfter: time.Now().AddDate(10, 0, 0), BasicConstraintsValid: true, IsCA: true,
	}, nil, keys[0], keys[0])
	if err != nil {
		return nil, err
	}
	client, err := sign(&x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver-etcd-client"},
		KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: time.Now().AddDate(1, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, keys[1], keys[0])
	if err != nil {
		return nil, err
	}
	secret := func(purpose string, cert *x509.Certificate,
		key *rsa.PrivateKey) *unstructured.Unstructured {
		o := object("v1", "Secret", namespace, workload+"-"+purpose, fields{
			"type": "cluster.x-k8s.io/secret", "data": fields{
				"tls.crt": base64.StdEncoding.EncodeToString([]byte(certPEM(cert))),
				"tls.key": base64.StdEncoding.EncodeToString([]byte(keyPEM(key)))}})
		o.SetLabels(map[string]string{clusterNameLabel: workload})
		return o
	}
	return []*unstructured.Unstructured{secret("etcd", ca, keys[0]),
		secret("apiserver-etcd-client", client, keys[1])}, nil
}
