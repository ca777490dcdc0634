package restore

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// checkCertificates: a workload cluster with a kubeadm control plane must have its certificate
// Secrets, and each certificate must fit its key.
func checkCertificates(_ context.Context, p *planner) error {
	for n := range p.active {
		if n.GroupKind() != capi.Cluster {
			continue
		}
		for _, purpose := range p.certificates(n) {
			r := object.Ref{Kind: "Secret", Namespace: n.Namespace, Name: n.Name + "-" + purpose}
			if !p.inPlan(r) {
				p.add(n, object.Finding{Severity: object.Error, Code: object.CodeCAMissing, Message: "Secret " +
					r.String() + " is not in the snapshot; the control-plane provider would make a new one",
					Hint: "restore from an older snapshot that has it"})
				continue
			}
			raw, err := p.Contents.Bytes(r)
			if err != nil {
				return err
			}
			if why := certificateProblem(raw, purpose); why != "" {
				p.add(n, object.Finding{Severity: object.Error, Code: object.CodeCAInvalid, Message: "Secret " +
					r.String() + ": " + why,
					Hint: "the workload cluster cannot be managed with it; use an older snapshot"})
			}
		}
	}
	return nil
}

// certificates returns the suffixes of the certificate Secrets without which the controller of a
// Cluster's control plane makes new ones.
func (p *planner) certificates(cluster *graph.Node) []string {
	for _, need := range cluster.Needs {
		if suffixes := p.rows().Row(need.GroupKind()).Certificates; suffixes != nil {
			return suffixes
		}
	}
	return nil
}

// certificateProblem says what is wrong with a certificate Secret, without a byte of it.
func certificateProblem(raw []byte, purpose string) string {
	crt, err1 := decodeBase64(gjson.GetBytes(raw, `data.tls\.crt`).String())
	key, err2 := decodeBase64(gjson.GetBytes(raw, `data.tls\.key`).String())
	if err1 != nil || err2 != nil || len(crt) == 0 {
		return "tls.crt or tls.key is missing"
	}
	if len(key) == 0 {
		// the operator has the key elsewhere, which the provider allows for an external CA
		return ""
	}
	if purpose == "sa" {
		if !keysMatch(crt, key) {
			return "tls.crt and tls.key do not belong together"
		}
		return ""
	}
	if _, err := tls.X509KeyPair(crt, key); err != nil {
		return "tls.crt and tls.key do not belong together, or one is damaged"
	}
	return ""
}

// webhookTimeout bounds one dry-run: a webhook may hang for its own 10 s, a classy Cluster without
// its class for 4 s.
const webhookTimeout = 15 * time.Second

// down reports whether a webhook does not answer, in contrast to one that refuses. The API server
// reports the former as an internal error.
func down(err error) bool {
	return err != nil && (apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		errors.Is(err, context.DeadlineExceeded)) &&
		(strings.Contains(err.Error(), "webhook") || errors.Is(err, context.DeadlineExceeded))
}
