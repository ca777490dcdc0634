package restore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
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

// checkWebhooks runs one object of each kind through the target's admission, dry. What admission
// thinks of the object does not matter here; that its webhooks answer does: a webhook that is down
// would refuse every object in the middle of the restore.
func checkWebhooks(ctx context.Context, p *planner) error {
	samples := map[object.GroupKind]*graph.Node{}
	for n := range p.active {
		if _, served := p.kinds[n.GroupKind()]; !served || n.Group == "" {
			continue
		}
		if have := samples[n.GroupKind()]; have == nil || softOwners(n) < softOwners(have) {
			// one that waits for nothing, such as a Cluster without a class, answers soonest
			samples[n.GroupKind()] = n
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(planReads)
	for gk, n := range samples {
		g.Go(func() error {
			obj, err := decodeObject(p.rows(), p.Contents, n.Ref)
			if err != nil {
				return err
			}
			strip(obj)
			obj.SetOwnerReferences(nil)
			obj.SetName("mgmtd-preflight-" + strings.ToLower(n.Kind))
			if n.Namespace != "" && p.existing[object.Ref{Kind: "Namespace", Name: n.Namespace}] == "" {
				obj.SetNamespace("default")
			}
			dctx, cancel := context.WithTimeout(ctx, webhookTimeout)
			defer cancel()
			_, err = p.Prober.DryRunCreate(dctx, p.kinds[gk], obj)
			if down(err) {
				p.addAll(object.Finding{Severity: object.Error, Code: object.CodeWebhookDown,
					Message: fmt.Sprintf("a webhook for %s does not answer: %s", gk, safe(gk, err)),
					Hint: "wait until the provider's controllers run and their certificates are in place, " +
						"then plan again"})
			}
			return nil
		})
	}
	return g.Wait()
}

func softOwners(n *graph.Node) int {
	count := 0
	for _, need := range n.Needs {
		if need.Owner {
			count++
		}
	}
	return count
}

// down reports whether a webhook does not answer, in contrast to one that refuses. The API server
// reports the former as an internal error.
func down(err error) bool {
	return err != nil && (apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		errors.Is(err, context.DeadlineExceeded)) &&
		(strings.Contains(err.Error(), "webhook") || errors.Is(err, context.DeadlineExceeded))
}
