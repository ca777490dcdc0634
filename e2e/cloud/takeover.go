package cloud

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/cloud/control"
)

// TakeOver continues a workload cluster of another cloud, which has given it up: the same virtual
// machines, Nodes and etcd members, behind the same port. name is namespace/name of its Cluster.
// The reconcilers then find everything that they would create.
func (c *Cloud) TakeOver(ctx context.Context, name string, w control.Workload) error {
	c.machines.AddResourceGroup(name)
	group := c.machines.GetResourceGroup(name).GetClient()
	decoder := serializer.NewCodecFactory(c.machines.GetScheme()).UniversalDeserializer()
	// Reconcilers name the listener and the group of objects after the Cluster.
	if _, err := c.apiServers.InitWorkloadClusterListener(name, w.Port); err != nil {
		return fmt.Errorf("take over %s: %w", name, err)
	}
	if err := c.apiServers.RegisterResourceGroup(name, name); err != nil {
		return fmt.Errorf("take over %s: %w", name, err)
	}
	var pods []*corev1.Pod
	for _, body := range w.Objects {
		decoded, _, err := decoder.Decode(body, nil, nil)
		if err != nil {
			return fmt.Errorf("take over %s: decode object: %w", name, err)
		}
		o, ok := decoded.(client.Object)
		if !ok {
			return fmt.Errorf("take over %s: %T is no object", name, decoded)
		}
		switch o := o.(type) {
		case *corev1.Pod:
			pods = append(pods, o)
		case *corev1.Node:
			taintControlPlane(o)
		}
		if err := group.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("take over %s: create %T %s: %w", name, o, o.GetName(), err)
		}
	}
	return c.startControlPlane(name, w, pods)
}

// taintControlPlane sets the taint that kubeadm gives the Nodes of control planes. The in-memory
// provider of Cluster API 1.10.7 does not, and in 1.14 a control plane Machine without it is not
// Ready (condition NodeKubeadmLabelsAndTaintsSet).
func taintControlPlane(node *corev1.Node) {
	const role = "node-role.kubernetes.io/control-plane"
	_, ok := node.Labels[role]
	if ok && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == role
	}) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: role,
			Effect: corev1.TaintEffectNoSchedule})
	}
}

// startControlPlane serves the API servers and etcd members that the Pods of kubeadm stand for.
func (c *Cloud) startControlPlane(name string, w control.Workload, pods []*corev1.Pod) error {
	components := map[string]struct {
		authority control.KeyPair
		add       func(name, pod string, cert *x509.Certificate, key *rsa.PrivateKey) error
	}{
		"kube-apiserver": {w.CA, c.apiServers.AddAPIServer},
		"etcd":           {w.EtcdCA, c.apiServers.AddEtcdMember},
	}
	for _, pod := range pods {
		component, ok := components[pod.Labels["component"]]
		if !ok {
			continue
		}
		cert, err := certs.DecodeCertPEM(component.authority.Certificate)
		if err != nil {
			return fmt.Errorf("take over %s: read CA: %w", name, err)
		}
		signer, err := certs.DecodePrivateKeyPEM(component.authority.Key)
		if err != nil {
			return fmt.Errorf("take over %s: read key of CA: %w", name, err)
		}
		key, ok := signer.(*rsa.PrivateKey)
		if !ok {
			return fmt.Errorf("take over %s: the key of the CA is a %T", name, signer)
		}
		if err := component.add(name, pod.Name, cert, key); err != nil {
			return fmt.Errorf("take over %s: start %s: %w", name, pod.Name, err)
		}
	}
	return nil
}
