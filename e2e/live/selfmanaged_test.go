package live

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// machineAnnotation is what the controller of Machines writes to the Node of a Machine.
const machineAnnotation = "cluster.x-k8s.io/machine"

// manageItself makes the source a self-managed management cluster, as "clusterctl move" into a
// cluster that it has made does: the Cluster own, its Machines and its KubeadmControlPlane are
// objects of the source, and describe the machines that the source runs on. Its endpoint, its CA,
// its Nodes and the Pods of its control plane are those of the API server of the source. It must be
// paused. The controllers of the source start again, and bring it to Available through that API
// server alone; the kubeconfig is the one that the controller of its control plane makes.
func (a *authorityFleet) manageItself(ctx context.Context) error {
	machines, err := a.workloadClient(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return a.registerNodes(ctx, machines) },
		func(ctx context.Context) error { return a.registerControlPlane(ctx, machines) },
		a.serveOwnEndpoint, a.useOwnCA,
		func(context.Context) error { return a.source.KillAll() },
		a.source.Restart,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", ownNamespace, ownName)
	if err := a.clients[a.source].Patch(ctx, cluster, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"paused":null}}`)), client.FieldOwner(fleet.Owner)); err != nil {
		return fmt.Errorf("unpause the own Cluster: %w", err)
	}
	var keys []types.NamespacedName
	for _, name := range []string{expiredName, renewedName, withoutCA, ownName} {
		keys = append(keys, types.NamespacedName{Namespace: authorityPrefix + name, Name: name})
	}
	if err := fleet.WaitAvailable(ctx, a.clients[a.source], keys...); err != nil {
		return err
	}
	printProgress("the source manages itself")
	return a.checkManagesItself(ctx)
}

// workloadClient returns a client of the API server that the provider of the lab made for the
// Cluster own.
func (a *authorityFleet) workloadClient(ctx context.Context) (client.Client, error) {
	config, err := a.ownKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{})
}

func (a *authorityFleet) ownKubeconfig(ctx context.Context) (*rest.Config, error) {
	secret := object("v1", "Secret", ownNamespace, ownName+"-kubeconfig")
	if err := a.clients[a.source].Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(valueOf(secret, "value"))
}

// registerNodes registers the Nodes of the machines in the source, without what controllers of
// Cluster API have written to them.
func (a *authorityFleet) registerNodes(ctx context.Context, machines client.Client) error {
	var nodes corev1.NodeList
	if err := machines.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	for _, was := range nodes.Items {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: was.Name, Labels: was.Labels},
			Spec: was.Spec}
		if err := a.register(ctx, node, func() { node.Status = was.Status }); err != nil {
			return err
		}
	}
	return nil
}

// registerControlPlane creates the Pods of the control plane in the source, as mirrors of static
// Pods, and the ConfigMap that kubeadm leaves.
func (a *authorityFleet) registerControlPlane(ctx context.Context, machines client.Client) error {
	var pods corev1.PodList
	if err := machines.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	for _, was := range pods.Items {
		if was.Labels["component"] == "etcd" {
			continue // the etcd of the source is not one of its machines
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: was.Name, Namespace: was.Namespace,
			Labels: was.Labels}, Spec: corev1.PodSpec{NodeName: was.Spec.NodeName,
			Containers: []corev1.Container{{Name: was.Labels["component"],
				Image: "registry.k8s.io/pause:3.10"}}}}
		if err := a.register(ctx, pod, func() { pod.Status = was.Status }); err != nil {
			return err
		}
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-config",
		Namespace: metav1.NamespaceSystem}, Data: map[string]string{"ClusterConfiguration": ""}}
	return a.clients[a.source].Create(ctx, config)
}

// register creates an object in the source, and then its status, which setStatus sets.
func (a *authorityFleet) register(ctx context.Context, o client.Object, setStatus func()) error {
	if err := a.clients[a.source].Create(ctx, o); err != nil {
		return fmt.Errorf("register %T %s: %w", o, o.GetName(), err)
	}
	setStatus()
	if err := a.clients[a.source].Status().Update(ctx, o); err != nil {
		return fmt.Errorf("write status of %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// serveOwnEndpoint makes the API server of the source the endpoint of the Cluster own.
func (a *authorityFleet) serveOwnEndpoint(ctx context.Context) error {
	config, err := a.source.RESTConfig()
	if err != nil {
		return err
	}
	host, port, found := strings.Cut(strings.TrimPrefix(config.Host, "https://"), ":")
	if !found {
		return fmt.Errorf("the address of the source is %s", config.Host)
	}
	patch := fmt.Sprintf(`{"spec":{"controlPlaneEndpoint":{"host":%q,"port":%s}}}`, host, port)
	for _, o := range []*unstructured.Unstructured{
		object("cluster.x-k8s.io/v1beta2", "Cluster", ownNamespace, ownName),
		object("infrastructure.cluster.x-k8s.io/v1beta2", "DevCluster", ownNamespace, ownName)} {
		if err := a.clients[a.source].Patch(ctx, o, client.RawPatch(types.MergePatchType,
			[]byte(patch)), client.FieldOwner(fleet.Owner)); err != nil {
			return fmt.Errorf("set the endpoint of %s: %w", observe.RefOf(o), err)
		}
	}
	return nil
}

// useOwnCA makes the CA of the source that of the Cluster own, and deletes the kubeconfig: the
// controller of the control plane makes one from the CA and the endpoint.
func (a *authorityFleet) useOwnCA(ctx context.Context) error {
	cert, key, err := a.source.Authority()
	if err != nil {
		return err
	}
	ca := object("v1", "Secret", ownNamespace, ownName+"-ca")
	if err := a.clients[a.source].Get(ctx, client.ObjectKeyFromObject(ca), ca); err != nil {
		return err
	}
	ca.Object["data"] = map[string]any{"tls.crt": base64.StdEncoding.EncodeToString(cert),
		"tls.key": base64.StdEncoding.EncodeToString(key)}
	if err := a.clients[a.source].Update(ctx, ca); err != nil {
		return fmt.Errorf("replace the CA: %w", err)
	}
	return a.clients[a.source].Delete(ctx, object("v1", "Secret", ownNamespace,
		ownName+"-kubeconfig"))
}

// checkManagesItself returns an error unless the kubeconfig of the Cluster own leads to the source,
// and the controllers of the source have found each of its Machines' Nodes there.
func (a *authorityFleet) checkManagesItself(ctx context.Context) error {
	config, err := a.ownKubeconfig(ctx)
	if err != nil {
		return err
	}
	itself, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	system := types.NamespacedName{Name: metav1.NamespaceSystem}
	var own, source corev1.Namespace
	if err := itself.Get(ctx, system, &own); err != nil {
		return fmt.Errorf("ask the own API server: %w", err)
	}
	if err := a.clients[a.source].Get(ctx, system, &source); err != nil {
		return err
	}
	if own.UID != source.UID {
		return fmt.Errorf("the own Cluster is %s, the source is %s", own.UID, source.UID)
	}
	objects, err := observe.Inventory(ctx, a.source.Kubeconfig(), ownNamespace)
	if err != nil {
		return err
	}
	machines := observe.Machines(objects)
	if len(machines) != 2 {
		return fmt.Errorf("the own Cluster has %d Machines", len(machines))
	}
	for _, m := range machines {
		if err := checkOwnNode(ctx, itself, m); err != nil {
			return err
		}
	}
	return nil
}

// checkOwnNode waits until the controller of a Machine has written to its Node in the own API
// server.
func checkOwnNode(ctx context.Context, itself client.Client, m observe.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	for {
		var node corev1.Node
		err := itself.Get(ctx, types.NamespacedName{Name: m.Node}, &node)
		if err == nil && node.Spec.ProviderID == m.ProviderID &&
			node.Annotations[machineAnnotation] == m.Name {
			return nil
		}
		if err != nil && apierrors.IsNotFound(err) {
			return fmt.Errorf("the Node of Machine %s is not in the source: %w", m.Name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no controller has written to Node %s: it has provider ID %s and the "+
				"annotations %v (%w)", m.Node, node.Spec.ProviderID, node.Annotations, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
