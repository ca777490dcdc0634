//go:build api

package restore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// TestAPIAWorkloadClusterIsReadFromARealServer: a real API server pages its Nodes. It is known by
// its identity, and by how mgmtd reaches it, as the management cluster that it is.
func TestAPIAWorkloadClusterIsReadFromARealServer(t *testing.T) {
	text, err := os.ReadFile(servers.Options(1).KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	config.ContentConfig, config.QPS = kube.JSONContent(), -1
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 150
	name := func(i int) string { return fmt.Sprintf("real-%03d", i) }
	t.Cleanup(func() {
		for i := range nodes {
			_ = client.Delete().AbsPath("/api/v1/nodes/" + name(i)).Do(context.Background()).Error()
		}
	})
	for i := range nodes {
		labels := `{}`
		if i == 0 {
			labels = `{"node-role.kubernetes.io/control-plane":""}`
		}
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"labels":%s},
			"spec":{"providerID":"p://%d"}}`, name(i), labels, i)
		if err := client.Post().AbsPath("/api/v1/nodes").Body([]byte(body)).Do(t.Context()).
			Error(); err != nil {
			t.Fatal(err)
		}
	}
	k, err := workload.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	state, err := k.Ask(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	found, control := 0, 0
	for _, n := range state.Nodes {
		if n.Name[:min(len(n.Name), 5)] == "real-" && n.ProviderID != "" {
			found++
		}
		if n.ControlPlane {
			control++
		}
	}
	if found != nodes || control != 1 || len(state.EtcdMembers) != 0 || state.EtcdUnknown != "" {
		t.Errorf("%d Nodes, %d of a control plane, members %v %s", found, control, state.EtcdMembers,
			state.EtcdUnknown)
	}
	m, err := kube.Connect(t.Context(), servers.Options(1))
	if err != nil {
		t.Fatal(err)
	}
	if state.UID != m.UID() || !slices.Equal(m.API().CA, k.CA()) || m.API().Server != k.Server() {
		t.Errorf("%s at %s with %v is not %s at %+v", state.UID, k.Server(), k.CA(), m.UID(), m.API())
	}
}
