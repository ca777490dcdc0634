package lab_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
)

// TestLabRunsKillsAndRestarts runs through all that a lab can do: it needs `lab build` first,
// and takes about two minutes.
func TestLabRunsKillsAndRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real management clusters")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Dir: t.TempDir(), Mgmt: 1,
		Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := l.Mgmt("mgmt-1")
	c := newClient(t, m)
	keys, err := fleet.Create(ctx, c, fleet.Options{Shapes: fleet.Named("plain")})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("the controllers find a restarted API server", func(t *testing.T) {
		if err := m.KillAPIServer(); err != nil {
			t.Fatal(err)
		}
		if err := m.RestartAPIServer(ctx); err != nil {
			t.Fatal(err)
		}
		scale(ctx, t, c, keys[0], 2)
	})
	t.Run("a killed management cluster comes back as it was", func(t *testing.T) {
		if err := m.KillAll(); err != nil {
			t.Fatal(err)
		}
		if err := m.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		scale(ctx, t, c, keys[0], 1)
	})
	t.Run("a management cluster joins later", func(t *testing.T) {
		if _, err := l.AddMgmt(ctx, "later"); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a bare fleet is whole", func(t *testing.T) {
		bare, err := l.AddBare(ctx, "bare")
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, bare)
		if _, err := fleet.CreateBare(ctx, c, fleet.BareOptions{Workloads: 3, Machines: 4,
			MachinePools: true}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"w-00000", "w-00001", "w-00002"} {
			key := types.NamespacedName{Namespace: "team-0000", Name: name}
			if err := fleet.Available(ctx, c, key); err != nil {
				t.Error(err)
			}
			assertKeysMatch(ctx, t, c, key)
		}
	})
}

func newClient(t *testing.T, m *lab.Mgmt) client.Client {
	t.Helper()
	config, err := m.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// scale changes a MachineDeployment, which every controller has a part in.
func scale(ctx context.Context, t *testing.T, c client.Client, key types.NamespacedName,
	replicas int64) {
	t.Helper()
	begin := time.Now()
	md := &unstructured.Unstructured{}
	md.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	md.SetKind("MachineDeployment")
	if err := c.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-md-0"},
		md); err != nil {
		t.Fatal(err)
	}
	before := md.DeepCopy()
	_ = unstructured.SetNestedField(md.Object, replicas, "spec", "replicas")
	if err := c.Patch(ctx, md, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := fleet.WaitAvailable(ctx, c, key); err != nil {
		t.Fatal(err)
	}
	t.Logf("scaled to %d in %s", replicas, time.Since(begin).Round(100*time.Millisecond))
}

// assertKeysMatch checks that certificates and keys of a workload cluster belong together.
func assertKeysMatch(ctx context.Context, t *testing.T, c client.Client, key types.NamespacedName) {
	t.Helper()
	for _, role := range []string{"ca", "etcd", "proxy"} {
		secret := &corev1.Secret{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-" + role},
			secret); err != nil {
			t.Fatal(err)
		}
		if _, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"]); err != nil {
			t.Errorf("%s of %s: %v", role, key, err)
		}
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name +
		"-kubeconfig"}, secret); err != nil {
		t.Fatal(err)
	}
	if _, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"]); err != nil {
		t.Errorf("kubeconfig of %s: %v", key, err)
	}
}
