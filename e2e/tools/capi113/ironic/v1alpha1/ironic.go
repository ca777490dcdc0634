// Package v1alpha1 has the types of ironic-standalone-operator that the Baremetal Operator names,
// in place of the module, which no module proxy has. The operator uses them when IRONIC_NAME is set.
// The lab runs it in test mode, without Ironic.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme adds Ironic to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(schema.GroupVersion{Group: "ironic.metal3.io", Version: "v1alpha1"}, &Ironic{})
	return nil
}

// IronicStatusReady is the condition of an Ironic that works.
const IronicStatusReady = "Ready"

// Ironic is an Ironic service.
type Ironic struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   IronicSpec
	Status IronicStatus
}

// IronicSpec has the fields that the Baremetal Operator reads.
type IronicSpec struct {
	APICredentialsName string
	TLS                TLS
}

// TLS has the fields that the Baremetal Operator reads.
type TLS struct {
	CertificateName string
}

// IronicStatus has the fields that the Baremetal Operator reads.
type IronicStatus struct {
	Conditions []metav1.Condition
}

// DeepCopyObject makes it a runtime.Object.
func (i *Ironic) DeepCopyObject() runtime.Object {
	copied := *i
	i.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Status.Conditions = append([]metav1.Condition(nil), i.Status.Conditions...)
	return &copied
}
