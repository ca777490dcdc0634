//go:build api

package restore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// metadataManager is the field manager with which the control plane controller of Cluster API 1.14
// applies labels and annotations, of which there are none in most fleets.
const metadataManager = "capi-kubeadmcontrolplane-metadata"

// TestAPIRestoreWritesAnEmptyAppliedMap: an applier owns an empty map of annotations of a
// KubeadmConfig, as with stock controllers. Its restore is released, with this entry, also when the
// process dies before the write of managedFields.
func TestAPIRestoreWritesAnEmptyAppliedMap(t *testing.T) {
	servers.Acknowledge(t, 1)
	for name, prefix := range map[string]string{"in one run": "one-fields-", "in two": "two-fields-"} {
		t.Run(name, func(t *testing.T) {
			servers.Fleet(t, 0, "--namespace-prefix", prefix, "--workloads", "1", "--machines", "1",
				"--fast")
			config := applyEmptyMap(t, prefix)
			s, writer := take(t, prefix), realWriter
			if name == "in two" {
				writer = func(m *kube.Mgmt) restore.Writer {
					return &beforeFields{Writer: m.Writer(), name: config.GetName()}
				}
			}
			err := s.carryOut(t.Context(), everything, writer)
			if name == "in two" {
				if !errors.Is(err, errCrash) {
					t.Fatalf("the first run: %v", err)
				}
				err = s.carryOut(t.Context(), everything, realWriter)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkRestored(t, s)
			live, err := dynamicClient(t, 1).Resource(kubeadmConfigs).Namespace(config.GetNamespace()).
				Get(t.Context(), config.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !ownsEmptyMap(live) {
				t.Errorf("the applier does not own its empty map: %v", live.GetManagedFields())
			}
		})
	}
}

var kubeadmConfigs = schema.GroupVersionResource{Group: "bootstrap.cluster.x-k8s.io",
	Version: "v1beta2", Resource: "kubeadmconfigs"}

func dynamicClient(t *testing.T, server int) dynamic.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", servers.Options(server).KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// applyEmptyMap applies to a KubeadmConfig of the source what its controller does where a
// KubeadmControlPlane has no annotations for its Machines.
func applyEmptyMap(t *testing.T, prefix string) *unstructured.Unstructured {
	t.Helper()
	client := dynamicClient(t, 0).Resource(kubeadmConfigs)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		if !strings.HasPrefix(u.GetNamespace(), prefix) {
			continue
		}
		if len(u.GetAnnotations()) > 0 {
			u.SetAnnotations(nil)
			if u, err = client.Namespace(u.GetNamespace()).Update(t.Context(), u,
				metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		u, err = client.Namespace(u.GetNamespace()).Apply(t.Context(), u.GetName(),
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{
					"name": u.GetName(), "namespace": u.GetNamespace(), "annotations": map[string]any{},
					"labels": map[string]any{"cluster.x-k8s.io/control-plane": ""}},
			}}, metav1.ApplyOptions{FieldManager: metadataManager, Force: true})
		if err != nil {
			t.Fatal(err)
		}
		if !ownsEmptyMap(u) || len(u.GetAnnotations()) > 0 {
			t.Fatalf("the source has %v with annotations %v", u.GetManagedFields(), u.GetAnnotations())
		}
		return u
	}
	t.Fatal("the fleet has no KubeadmConfig")
	return nil
}

func ownsEmptyMap(u *unstructured.Unstructured) bool {
	for _, e := range u.GetManagedFields() {
		if e.Manager == metadataManager && e.Operation == metav1.ManagedFieldsOperationApply {
			return strings.Contains(e.FieldsV1.GetRawString(), `"f:annotations":{}`)
		}
	}
	return false
}

var errCrash = errors.New("the process dies here")

// beforeFields refuses every write of managedFields of one applier's objects of this name.
type beforeFields struct {
	restore.Writer
	name string
}

func (b *beforeFields) Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if k.Kind == "KubeadmConfig" && obj.GetName() == b.name && ownsEmptyMap(obj) {
		return nil, errCrash
	}
	return b.Writer.Update(ctx, k, obj)
}
