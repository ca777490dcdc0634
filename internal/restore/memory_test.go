package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// memory is a management cluster in memory, for tests of what a run does when one object fails.
// What a real API server answers is tested by the API tests.
type memory struct {
	uid   string
	kinds []kube.Kind
	// refuse, when set, is asked before each create, and refuseUpdate before each update.
	refuse, refuseUpdate func(u *unstructured.Unstructured) error
	// refuseStatus, when set, is asked before each write of a status.
	refuseStatus func(u *unstructured.Unstructured) error
	// refuseDry, when set, is asked before each dry-run of a create. It may change the object.
	refuseDry func(u *unstructured.Unstructured) error
	// onCreate, when set, is what a controller does to a new object. It may change it.
	onCreate func(u *unstructured.Unstructured)
	// statusWritten, when set, is what a controller does to an object whose status was written.
	statusWritten func(u *unstructured.Unstructured)
	// convertIn and convertOut, when set, are what conversions make of an object that is written,
	// and of one that is read.
	convertIn, convertOut func(u *unstructured.Unstructured)
	// onList, when set, is called before each LIST.
	onList func(k kube.Kind, o kube.ListOptions)
	// refuseList, when set, is asked at the end of each LIST, as if the last page were refused.
	refuseList func(k kube.Kind) error
	// onGet, when set, is called before each GET.
	onGet func(ref object.Ref)

	mu      sync.Mutex
	version int
	objects map[object.Ref]*unstructured.Unstructured
	created []object.Ref
}

func memoryKind(group, kind, resource string, namespaced bool) kube.Kind {
	return kube.Kind{GroupKind: object.GroupKind{Group: group, Kind: kind}, Version: "v1beta2",
		Resource: resource, Namespaced: namespaced, Status: true, Served: []string{"v1beta2"},
		Contract: true}
}

var memoryKinds = []kube.Kind{kube.NamespaceKind, kube.SecretKind, kube.ConfigMapKind,
	memoryKind(capi.GroupCore, "Cluster", "clusters", true),
	memoryKind(capi.GroupCore, "ClusterClass", "clusterclasses", true),
	memoryKind(capi.GroupCore, "Machine", "machines", true),
	memoryKind(capi.GroupInfrastructure, "DevCluster", "devclusters", true),
	memoryKind(capi.GroupInfrastructure, "DevMachine", "devmachines", true),
	memoryKind(capi.GroupInfrastructure, "OpenStackCluster", "openstackclusters", true),
	memoryKind(capi.GroupInfrastructure, "OpenStackClusterIdentity", "openstackclusteridentities",
		false),
	memoryKind(capi.GroupInfrastructure, "OpenStackFloatingIPPool", "openstackfloatingippools", true),
	memoryKind(capi.GroupInfrastructure, "GCPCluster", "gcpclusters", true),
	memoryKind(capi.GroupInfrastructure, "AzureMachinePool", "azuremachinepools", true),
	memoryKind(capi.GroupInfrastructure, "KubevirtCluster", "kubevirtclusters", true),
	memoryKind(capi.GroupControlPlane, "KubeadmControlPlane", "kubeadmcontrolplanes", true),
	memoryKind(capi.GroupCore, "MachineHealthCheck", "machinehealthchecks", true),
	memoryKind(capi.GroupBootstrap, "KubeadmConfig", "kubeadmconfigs", true),
	memoryKind(capi.GroupControlPlane, "RKE2ControlPlane", "rke2controlplanes", true),
	memoryKind(capi.GroupControlPlane, "K0smotronControlPlane", "k0smotroncontrolplanes", true),
	memoryKind(capi.GroupBootstrap, "KubeadmConfigTemplate", "kubeadmconfigtemplates", true),
	memoryKind(capi.GroupAddons, "ClusterResourceSet", "clusterresourcesets", true),
	memoryKind(capi.GroupAddons, "ClusterResourceSetBinding", "clusterresourcesetbindings", true),
	memoryKind(capi.GroupAddons, "HelmChartProxy", "helmchartproxies", true),
	memoryKind(capi.GroupAddons, "HelmReleaseProxy", "helmreleaseproxies", true),
	memoryKind("example.org", "Chart", "charts", true),
	memoryKind("example.org", "Release", "releases", true),
	{GroupKind: object.GroupKind{Group: "acme.example.org", Kind: "Report"}, Version: "v1",
		Resource: "reports", Namespaced: true, Served: []string{"v1"}}, // nothing is known of it
	memoryKind("addons.stackhpc.com", "HelmRelease", "helmreleases", true),
	memoryKind("network.azure.com", "VirtualNetwork", "virtualnetworks", true),
	memoryKind("ipam.metal3.io", "IPPool", "ippools", true),
	memoryKind("metal3.io", "BareMetalHost", "baremetalhosts", true),
	memoryKind(capi.GroupIPAM, "GlobalInClusterIPPool", "globalinclusterippools", false),
	memoryKind(capi.GroupIPAM, "IPAddressClaim", "ipaddressclaims", true),
	memoryKind(capi.ExtensionConfig.Group, "ExtensionConfig", "extensionconfigs", false)}

// newMemory makes a management cluster with objects, each a JSON text without apiVersion:
// kind, then metadata and the rest.
func newMemory(t testing.TB, uid string, objects ...string) *memory {
	t.Helper()
	m := &memory{uid: uid, kinds: memoryKinds, objects: map[object.Ref]*unstructured.Unstructured{}}
	for _, text := range objects {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		i := slices.IndexFunc(m.kinds, func(k kube.Kind) bool { return k.Kind == u.GetKind() })
		u.SetAPIVersion(m.kinds[i].APIVersion())
		m.put(refOf(u), u)
	}
	for _, u := range m.objects {
		refs := u.GetOwnerReferences()
		for i := range refs {
			for _, o := range m.objects {
				if o.GetKind() == refs[i].Kind && o.GetName() == refs[i].Name {
					refs[i].APIVersion, refs[i].UID = o.GetAPIVersion(), o.GetUID()
				}
			}
		}
		if len(refs) > 0 {
			u.SetOwnerReferences(refs)
		}
	}
	m.created = nil
	return m
}

func refOf(u *unstructured.Unstructured) object.Ref {
	gvk := u.GroupVersionKind()
	return object.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// put stores an object that is new.
func (m *memory) put(ref object.Ref, u *unstructured.Unstructured) {
	m.version++
	u.SetUID(types.UID(fmt.Sprintf("%s-%04d", m.uid, m.version)))
	u.SetResourceVersion(fmt.Sprint(m.version))
	u.SetGeneration(1)
	m.objects[ref] = u
	m.created = append(m.created, ref)
}

func (m *memory) Kinds(context.Context) ([]kube.Kind, error) { return m.kinds, nil }

func (m *memory) List(_ context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	if m.onList != nil {
		m.onList(k, o)
	}
	read := func(u *unstructured.Unstructured) *unstructured.Unstructured { return u }
	if o.Since != "" { // it is polled, and was read by Get at first
		if read = m.read; m.onGet != nil {
			m.onGet(object.Ref{Group: k.Group, Kind: k.Kind, Namespace: o.Namespace, Name: o.Name})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	result := kube.ListResult{ResourceVersion: fmt.Sprint(m.version)}
	selector, err := labels.Parse(o.Labels)
	if err != nil {
		return result, err
	}
	for _, ref := range slices.SortedFunc(maps.Keys(m.objects), object.CompareRefs) {
		if ref.GroupKind() != k.GroupKind || o.Name != "" && ref.Name != o.Name ||
			o.Namespace != "" && ref.Namespace != o.Namespace ||
			len(o.Namespaces) > 0 && !slices.Contains(o.Namespaces, ref.Namespace) ||
			!selector.Matches(labels.Set(m.objects[ref].GetLabels())) {
			continue
		}
		raw, err := read(m.objects[ref]).MarshalJSON()
		if err == nil {
			err = fn(raw)
		}
		if err != nil {
			return result, err
		}
		result.Items++
	}
	if m.refuseList != nil {
		return result, m.refuseList(k)
	}
	return result, nil
}

func (m *memory) Changes(context.Context, kube.Kind, string, string,
	func(deleted bool, raw []byte) error) error {
	return nil
}

func (m *memory) Get(_ context.Context, k kube.Kind, namespace, name string) (
	*unstructured.Unstructured, error) {
	ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}
	if m.onGet != nil {
		m.onGet(ref)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.objects[ref]
	if u == nil {
		return nil, apierrors.NewNotFound(resourceOf(k), name)
	}
	return m.read(u), nil
}

// read returns a stored object as it is read.
func (m *memory) read(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	if m.convertOut != nil {
		m.convertOut(u)
	}
	return u
}

// store changes a written object into what is stored of it.
func (m *memory) store(u *unstructured.Unstructured) *unstructured.Unstructured {
	if m.convertIn != nil {
		m.convertIn(u)
	}
	return u
}

func resourceOf(k kube.Kind) schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// manage adds an entry to managedFields, as the API server does.
func manage(ctx context.Context, u *unstructured.Unstructured, subresource string) {
	u.SetManagedFields(append(u.GetManagedFields(), metav1.ManagedFieldsEntry{
		Manager: kube.FieldManager(ctx), Operation: metav1.ManagedFieldsOperationUpdate,
		Subresource: subresource}))
}

func (m *memory) Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.admit(k, obj); err != nil {
		return nil, err
	}
	ref := refOf(obj)
	if m.objects[ref] != nil {
		return nil, apierrors.NewAlreadyExists(resourceOf(k), obj.GetName())
	}
	u := obj.DeepCopy()
	if k.Status {
		delete(u.Object, "status")
	}
	manage(ctx, u, "")
	m.put(ref, m.store(u))
	if m.onCreate != nil {
		m.onCreate(u)
	}
	return m.read(u), nil
}

// admit refuses what refuse does, and what has no namespace, as the API server does.
func (m *memory) admit(k kube.Kind, obj *unstructured.Unstructured) error {
	if err := m.admitNamespace(k, obj); err != nil || m.refuse == nil {
		return err
	}
	return m.refuse(obj)
}

func (m *memory) admitNamespace(k kube.Kind, obj *unstructured.Unstructured) error {
	if k.Namespaced {
		ns := m.objects[object.Ref{Kind: "Namespace", Name: obj.GetNamespace()}]
		switch {
		case ns == nil:
			return apierrors.NewNotFound(resourceOf(kube.NamespaceKind), obj.GetNamespace())
		case ns.GetDeletionTimestamp() != nil:
			err := apierrors.NewForbidden(resourceOf(k), obj.GetName(), fmt.Errorf("unable to create new "+
				"content in namespace %s because it is being terminated", obj.GetNamespace()))
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
				metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
			return err
		}
	}
	return nil
}

func (m *memory) Update(_ context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if m.refuseUpdate != nil {
		if err := m.refuseUpdate(obj); err != nil {
			return nil, err
		}
	}
	return m.write(k, obj, func(u, with *unstructured.Unstructured) {
		status, has := u.Object["status"]
		u.Object = with.DeepCopy().Object
		if delete(u.Object, "status"); has {
			u.Object["status"] = status
		}
	})
}

func (m *memory) UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if m.refuseStatus != nil {
		if err := m.refuseStatus(obj); err != nil {
			return nil, err
		}
	}
	return m.write(k, obj, func(u, with *unstructured.Unstructured) {
		u.Object["status"] = with.DeepCopy().Object["status"]
		manage(ctx, u, "status")
		if m.statusWritten != nil {
			m.statusWritten(u)
		}
	})
}

func (m *memory) write(k kube.Kind, obj *unstructured.Unstructured,
	change func(u, with *unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.objects[refOf(obj)]
	switch {
	case u == nil:
		return nil, apierrors.NewNotFound(resourceOf(k), obj.GetName())
	case u.GetResourceVersion() != obj.GetResourceVersion():
		return nil, apierrors.NewConflict(resourceOf(k), obj.GetName(), errors.New("it was changed"))
	}
	change(u, obj)
	m.store(u)
	m.version++
	u.SetResourceVersion(fmt.Sprint(m.version))
	return m.read(u), nil
}

// set changes an object as somebody else.
func (m *memory) set(t *testing.T, ref string, change func(u *unstructured.Unstructured)) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := object.ParseRef(ref)
	if err != nil || m.objects[r] == nil {
		t.Fatalf("no object %s: %v", ref, err)
	}
	change(m.objects[r])
	m.version++
	m.objects[r].SetResourceVersion(fmt.Sprint(m.version))
}

// get returns an object, nil when there is none.
func (m *memory) get(t *testing.T, ref string) *unstructured.Unstructured {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := object.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	return m.objects[r]
}

// DryRunCreate refuses what has no namespace, and what refuseDry does. What refuse does is not
// known before the create.
func (m *memory) DryRunCreate(_ context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := obj.DeepCopy()
	if err := m.admitNamespace(k, obj); err != nil || m.refuseDry == nil {
		return stored, err
	}
	return stored, m.refuseDry(stored)
}

func (m *memory) DryRunUpdate(_ context.Context, _ kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return m.read(m.store(obj.DeepCopy())), nil
}

func (m *memory) DryRunUpdateStatus(_ context.Context, _ kube.Kind,
	obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return m.read(m.store(obj.DeepCopy())), nil
}

func (m *memory) Allowed(context.Context, string, kube.Kind, string) (bool, error) {
	return true, nil
}
