package cloud

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
)

func TestWorkloadClustersHaveALastingIdentity(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	m := identified{inmemoryruntime.NewManager(scheme)}
	seen := map[types.UID]bool{}
	for _, name := range []string{"a/web", "a/web", "b/web"} {
		m.AddResourceGroup(name)
		ns := &corev1.Namespace{}
		if err := m.GetResourceGroup(name).GetClient().Get(t.Context(),
			types.NamespacedName{Name: "kube-system"}, ns); err != nil {
			t.Fatal(err)
		}
		seen[ns.UID] = true
	}
	if len(seen) != 2 || seen[""] {
		t.Errorf("two workload clusters have the UIDs %v", seen)
	}
}
