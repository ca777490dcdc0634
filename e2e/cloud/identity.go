package cloud

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
)

// identified is an inventory whose workload clusters have an identity. The in-memory provider gives
// no object a UID (cluster-api/test v1.14.0, inmemory/pkg/runtime/cache/hooks.go), and the UID of
// the Namespace kube-system is what identifies a cluster.
type identified struct{ inmemoryruntime.Manager }

// AddResourceGroup adds the objects of a workload cluster. The provider calls it again and again,
// and creates kube-system only where that is missing.
func (m identified) AddResourceGroup(name string) {
	m.Manager.AddResourceGroup(name)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem,
		UID:    uuid.NewUUID(),
		Labels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}}}
	err := m.GetResourceGroup(name).GetClient().Create(context.Background(), ns)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		klog.Background().Error(err, "create Namespace kube-system", "workload", name)
	}
}
