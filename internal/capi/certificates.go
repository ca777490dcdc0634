package capi

import "strings"

// CertificatePurposes are the suffixes of the Secrets that belong to a workload cluster by name,
// "<workload cluster>-<purpose>", also when nothing owns them (Cluster API: util/secret; clusterctl's
// own list).
var CertificatePurposes = []string{"kubeconfig", "ca", "etcd", "sa", "proxy",
	"apiserver-etcd-client"}

// CertificateOf returns the name of the workload cluster to which a Secret of this name would
// belong as a certificate, or "".
func CertificateOf(name string) string {
	shortest := ""
	for _, p := range CertificatePurposes {
		if c, ok := strings.CutSuffix(name, "-"+p); ok && (shortest == "" || len(c) < len(shortest)) {
			shortest = c // the longest purpose wins: "x-apiserver-etcd-client" belongs to x
		}
	}
	return shortest
}
