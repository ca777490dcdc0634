package live

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// build makes the workload clusters, plants the orphans, takes a snapshot, and kills the source.
func (a *authorityFleet) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	steps := []func(ctx context.Context) error{
		func(ctx context.Context) error { return a.start(ctx, lab.Options{}) },
		a.createFleets, a.manageItself, a.readSecrets,
		func(ctx context.Context) (err error) {
			a.before, err = observe.StableInventory(ctx, a.source.Kubeconfig())
			return err
		},
		a.plant, a.removeCA, a.snapshotExpired,
		func(ctx context.Context) (err error) {
			a.living, err = observe.StableInventory(ctx, a.target.Kubeconfig(), authorityPrefix+livingName)
			return err
		},
		func(ctx context.Context) (err error) {
			a.watcher, err = observe.Watch(context.WithoutCancel(ctx), a.target.Kubeconfig())
			return err
		},
		func(context.Context) error { return a.source.KillAll() },
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *authorityFleet) createFleets(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	create := func(m *lab.Mgmt, names ...string) {
		opts := fleet.Options{Prefix: authorityPrefix, Progress: printProgress}
		for _, name := range names {
			// The etcd of the source is none of its machines, and it becomes the source while it is
			// paused.
			own := name == ownName
			opts.Shapes = append(opts.Shapes, fleet.Shape{Name: name, Namespace: name, ControlPlanes: 1,
				Pools: []int{1}, ExternalEtcd: own, Paused: own})
		}
		group.Go(func() error {
			_, err := fleet.Create(ctx, a.clients[m], opts)
			return err
		})
	}
	create(a.source, expiredName, renewedName, withoutCA, ownName)
	create(a.target, livingName)
	return group.Wait()
}

// gitOpsNamespace is one whose Secrets a GitOps tool of the target trusts.
const gitOpsNamespace = "argocd"

// plant creates objects on the source that are aimed at the target: a MachineHealthCheck and a
// Machine of a control plane that name a workload cluster there, and a Secret for a GitOps tool.
func (a *authorityFleet) plant(ctx context.Context) error {
	namespace := authorityPrefix + livingName
	labels := map[string]string{"cluster.x-k8s.io/cluster-name": livingName}
	check := object("cluster.x-k8s.io/v1beta2", "MachineHealthCheck", namespace, "planted")
	check.SetLabels(labels)
	check.Object["spec"] = map[string]any{"clusterName": livingName,
		"selector": map[string]any{"matchLabels": map[string]any{
			"cluster.x-k8s.io/cluster-name": livingName}},
		"checks": map[string]any{"unhealthyNodeConditions": []any{map[string]any{"type": "Ready",
			"status": "True", "timeoutSeconds": int64(1)}}}}
	machine := object("cluster.x-k8s.io/v1beta2", "Machine", namespace, "planted")
	machine.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": livingName,
		"cluster.x-k8s.io/control-plane": ""})
	machine.Object["spec"] = map[string]any{"clusterName": livingName,
		"bootstrap": map[string]any{"dataSecretName": "planted"},
		"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io",
			"kind": "DevMachine", "name": "planted"}}
	secret := object("v1", "Secret", gitOpsNamespace, "planted")
	secret.SetLabels(map[string]string{"clusterctl.cluster.x-k8s.io/move": "",
		"argocd.argoproj.io/secret-type": "repo-creds"})
	for _, o := range []*unstructured.Unstructured{object("v1", "Namespace", "", namespace),
		object("v1", "Namespace", "", gitOpsNamespace), check, machine, secret} {
		if err := a.clients[a.source].Create(ctx, o); err != nil {
			return fmt.Errorf("plant %s: %w", observe.RefOf(o), err)
		}
	}
	return nil
}

// removeCA deletes the CA of a workload cluster on the source. The controller of its control plane
// makes no other one once that is initialized.
func (a *authorityFleet) removeCA(ctx context.Context) error {
	return a.clients[a.source].Delete(ctx, object("v1", "Secret", authorityPrefix+withoutCA,
		withoutCA+"-ca"))
}

// snapshotExpired takes a snapshot with expired kubeconfigs. The source may renew them as soon as
// it sees them, so it may take several.
func (a *authorityFleet) snapshotExpired(ctx context.Context) error {
	names := []string{expiredName, renewedName}
	for range 10 {
		var written []*unstructured.Unstructured
		for _, name := range names {
			secret, err := a.expire(ctx, name)
			if err != nil {
				return err
			}
			written = append(written, secret)
		}
		if _, err := a.snapshot(ctx); err != nil {
			return err
		}
		unchanged := true
		for _, secret := range written {
			version := secret.GetResourceVersion()
			if err := a.clients[a.source].Get(ctx, client.ObjectKeyFromObject(secret),
				secret); err != nil {
				return err
			}
			unchanged = unchanged && secret.GetResourceVersion() == version
		}
		if unchanged {
			return nil
		}
	}
	return fmt.Errorf("the source renews the kubeconfigs before each snapshot")
}

// expire replaces the client certificate in the kubeconfig of a workload cluster by an expired one.
func (a *authorityFleet) expire(ctx context.Context, name string) (*unstructured.Unstructured,
	error) {
	c := a.clients[a.source]
	ca := object("v1", "Secret", authorityPrefix+name, name+"-ca")
	secret := object("v1", "Secret", authorityPrefix+name, name+"-kubeconfig")
	for _, o := range []*unstructured.Unstructured{ca, secret} {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return nil, err
		}
	}
	config, err := clientcmd.Load(valueOf(secret, "value"))
	if err != nil {
		return nil, err
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData, err = expiredCertificate(
			valueOf(ca, "tls.crt"), valueOf(ca, "tls.key"))
		if err != nil {
			return nil, err
		}
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, err
	}
	secret.Object["data"] = map[string]any{"value": base64.StdEncoding.EncodeToString(text)}
	return secret, c.Update(ctx, secret)
}

// assertOwnIsPaused asserts that the Cluster of the source is on the target, paused, with its
// Machines.
func (a *authorityFleet) assertOwnIsPaused(o *operator) {
	o.t.Helper()
	is, was := o.inventory(ownNamespace), a.before.In(ownNamespace)
	clusters := is.Of("cluster.x-k8s.io", "Cluster")
	if len(clusters) != 1 || !observe.Paused(clusters[0]) {
		o.t.Errorf("the Cluster of the source is not paused: %v", clusters)
	}
	assertNone(o.t, "Machines of the source", observe.CompareMachines(was, is))
	var differences []string
	for _, d := range observe.Compare(was, is, observe.Options{WithoutStatus: true}) {
		differences = append(differences, d.String())
	}
	assertEqual(o.t, "differences of the own Cluster", differences,
		[]string{"Cluster.cluster.x-k8s.io/" + ownNamespace + "/" + ownName + " differs in spec.paused"})
}

// valueOf returns a value of a Secret; nil when there is none.
func valueOf(secret *unstructured.Unstructured, key string) []byte {
	text, _, _ := unstructured.NestedString(secret.Object, "data", key)
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return value
}

// expiredCertificate signs a client certificate that expired a day ago.
func expiredCertificate(caCert, caKey []byte) (cert, key []byte, err error) {
	certBlock, _ := pem.Decode(caCert)
	keyBlock, _ := pem.Decode(caKey)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, fmt.Errorf("the CA is not PEM")
	}
	parent, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	signer, err := x509.ParsePKCS1PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(7),
		Subject:   pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, parent, own.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(own)}), nil
}
