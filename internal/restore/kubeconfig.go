package restore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
)

const (
	kubeconfigSuffix = "-kubeconfig"
	// generatedType is the type of the Secrets that Cluster API makes (cluster-api v1.14,
	// api/core/v1beta2/common_types.go).
	generatedType = "cluster.x-k8s.io/secret"
)

// kubeconfigData is the path of a kubeconfig in its Secret.
const kubeconfigData = "data.value"

// readKubeconfig reads the kubeconfig of a Secret. problem says why it cannot be used.
func readKubeconfig(secret []byte) (k *workload.Kubeconfig, problem string) {
	k, err := workload.ParseEncoded(gjson.GetBytes(secret, kubeconfigData).String())
	if err != nil {
		return nil, err.Error()
	}
	return k, ""
}

// isGenerated reports whether Cluster API made the Secret of a kubeconfig. The kubeadm control
// plane tells those that users provide by another type, and renews only those that it owns
// (cluster-api v1.14, controlplane/kubeadm/reconcilers/kubeadmcontrolplane/helpers.go). Without a
// control plane the Cluster owns it (util/kubeconfig).
func isGenerated(rows *capi.Table, secret []byte, cluster string) bool {
	if gjson.GetBytes(secret, "type").String() != generatedType {
		return false
	}
	for _, o := range gjson.GetBytes(secret, "metadata.ownerReferences").Array() {
		ref := capi.RefOf(o, object.GroupKind{}, "", func(object.GroupKind) bool { return true })
		if ref.GroupKind() == capi.Cluster && ref.Name == cluster ||
			slices.Contains(rows.Row(ref.GroupKind()).Certificates, "ca") {
			return true
		}
	}
	return false
}

// renewal is what the kubeconfig of a workload cluster is renewed from.
type renewal struct {
	generated bool   // by Cluster API
	ca, key   []byte // PEM
	algorithm string
}

func (n *renewal) readAuthority(secret []byte) { n.ca, n.key = readKeyPair(secret) }

// readKeyPair reads the certificate and the key of a Secret in PEM; nil for what cannot be read.
func readKeyPair(secret []byte) (cert, key []byte) {
	var err error
	if cert, err = decodeBase64(gjson.GetBytes(secret, `data.tls\.crt`).String()); err != nil {
		cert = nil
	}
	if key, err = decodeBase64(gjson.GetBytes(secret, `data.tls\.key`).String()); err != nil {
		key = nil
	}
	return cert, key
}

// renew returns a renewed kubeconfig; problem says why there is none.
func (n *renewal) renew(cluster string, old *workload.Kubeconfig, algorithm string) (text []byte,
	problem string) {
	if !n.generated {
		return nil, "it was provided by a user, and not made by Cluster API"
	}
	text, err := old.Renew(cluster, n.ca, n.key, algorithm)
	if err != nil {
		return nil, err.Error()
	}
	return text, ""
}

// liveKubeconfig reads the kubeconfig that the target has; nil when there is none that can be used.
func liveKubeconfig(ctx context.Context, reader Reader, ref object.Ref) (*workload.Kubeconfig,
	error) {
	live, err := reader.Get(ctx, kube.SecretKind, ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", ref, err)
	}
	return kubeconfigOf(live), nil
}

// kubeconfigOf returns the kubeconfig of a Secret; nil when there is none that can be used.
func kubeconfigOf(secret *unstructured.Unstructured) *workload.Kubeconfig {
	value, _, _ := unstructured.NestedString(secret.Object, "data", "value")
	k, err := workload.ParseEncoded(value)
	if err != nil {
		return nil
	}
	return k
}

// isRenewed reports whether live has a kubeconfig that renews the expired one of want: by us, or by
// the controller of its control plane.
func isRenewed(ref object.Ref, want, live *unstructured.Unstructured) bool {
	if ref.GroupKind() != kube.SecretKind.GroupKind {
		return false
	}
	is, was := kubeconfigOf(live), kubeconfigOf(want)
	return is != nil && was != nil && is.Renews(was, time.Now())
}
