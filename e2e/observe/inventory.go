package observe

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Ref names an object. It has no UID: UIDs differ between management clusters.
type Ref struct{ Group, Kind, Namespace, Name string }

// String is Kind.group/namespace/name.
func (r Ref) String() string {
	s := r.Kind
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Namespace != "" {
		s += "/" + r.Namespace
	}
	return s + "/" + r.Name
}

// Named returns an object that has nothing but its kind and its name.
func Named(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// RefOf names o.
func RefOf(o *unstructured.Unstructured) Ref {
	gvk := o.GroupVersionKind()
	return Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Objects are the objects of an API server as read, but with hashes in place of the values of
// Secrets.
type Objects map[Ref]*unstructured.Unstructured

// Refs returns the names of all objects, sorted.
func (o Objects) Refs() []Ref { return sortedRefs(o) }

// In returns the objects of namespaces, and these Namespaces themselves.
func (o Objects) In(namespaces ...string) Objects {
	in := Objects{}
	for ref, object := range o {
		if slices.Contains(namespaces, ref.Namespace) || isNamespace(ref) &&
			slices.Contains(namespaces, ref.Name) {
			in[ref] = object
		}
	}
	return in
}

// Of returns the objects of a kind, sorted by name.
func (o Objects) Of(group, kind string) []*unstructured.Unstructured {
	var of []*unstructured.Unstructured
	for _, ref := range sortedRefs(o) {
		if ref.Group == group && ref.Kind == kind {
			of = append(of, o[ref])
		}
	}
	return of
}

func sortedRefs[T any](objects map[Ref]T) []Ref {
	refs := make([]Ref, 0, len(objects))
	for ref := range objects {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.String(), b.String()) })
	return refs
}

// Inventory reads every object of every kind that belongs to Cluster API, and all Secrets,
// ConfigMaps and Namespaces. With namespaces it reads only these. Without, it reads all but the
// namespaces of the API server and of the providers, which every management cluster has. It leaves
// out the init locks of the kubeadm bootstrap provider.
func Inventory(ctx context.Context, kubeconfig string, namespaces ...string) (Objects, error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return nil, err
	}
	return v.inventory(ctx, namespaces)
}

// view reads one API server.
type view struct {
	client dynamic.Interface
	config *rest.Config
	// cached is the result of kinds: listing all CRDs costs an API server more than listing all
	// their objects.
	cached []kind
}

func newView(kubeconfig string) (*view, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &view{client: client, config: config}, nil
}

// kind is a kind and the resource that serves it.
type kind struct {
	schema.GroupKind
	resource   schema.GroupVersionResource
	namespaced bool
}

var (
	crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	secretKind = schema.GroupKind{Kind: "Secret"}
)

// kinds returns the kinds of all CustomResourceDefinitions with a label of clusterctl or of a
// contract version, and the core kinds that Inventory reads.
func (v *view) kinds(ctx context.Context) ([]kind, error) {
	if v.cached != nil {
		return v.cached, nil
	}
	core := func(name, resource string, namespaced bool) kind {
		return kind{schema.GroupKind{Kind: name}, schema.GroupVersionResource{Version: "v1",
			Resource: resource}, namespaced}
	}
	kinds := []kind{core("Namespace", "namespaces", false), core("Secret", "secrets", true),
		core("ConfigMap", "configmaps", true)}
	// resourceVersion 0 is served from the watch cache.
	list, err := v.client.Resource(crds).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	for _, crd := range list.Items {
		if !ofClusterAPI(crd.GetLabels()) {
			continue
		}
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		name, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		kinds = append(kinds, kind{
			schema.GroupKind{Group: group, Kind: name},
			schema.GroupVersionResource{Group: group, Version: storageVersion(&crd), Resource: plural},
			stringAt(&crd, "spec", "scope") == "Namespaced",
		})
	}
	v.cached = kinds
	return kinds, nil
}

func ofClusterAPI(labels map[string]string) bool {
	for label := range labels {
		if label == "clusterctl.cluster.x-k8s.io" || strings.HasPrefix(label, "cluster.x-k8s.io/v1") {
			return true
		}
	}
	return false
}

func storageVersion(crd *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range versions {
		if version, ok := item.(map[string]any); ok && version["storage"] == true {
			name, _ := version["name"].(string)
			return name
		}
	}
	return ""
}

func (v *view) inventory(ctx context.Context, namespaces []string) (Objects, error) {
	return v.inventoryOf(ctx, func(kind) bool { return true }, namespaces)
}

func (v *view) inventoryOf(ctx context.Context, wanted func(kind) bool, namespaces []string) (
	Objects, error) {
	kinds, err := v.kinds(ctx)
	if err != nil {
		return nil, err
	}
	all := Objects{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, k := range kinds {
		if !wanted(k) {
			continue
		}
		group.Go(func() error {
			return v.each(ctx, k, namespaces, func(o *unstructured.Unstructured) {
				if isInitLock(o) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				all[RefOf(o)] = o
			})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if len(namespaces) > 0 {
		return all.In(namespaces...), nil
	}
	return withoutOwn(all), nil
}

// each calls fn for every object of a kind. It lists in pages, and only in the namespace when
// namespaces is one.
func (v *view) each(ctx context.Context, k kind, namespaces []string,
	fn func(*unstructured.Unstructured)) error {
	opts := metav1.ListOptions{Limit: 500}
	var client dynamic.ResourceInterface = v.client.Resource(k.resource)
	if k.namespaced && len(namespaces) == 1 {
		client = v.client.Resource(k.resource).Namespace(namespaces[0])
	}
	for {
		list, err := client.List(ctx, opts)
		if err != nil {
			return fmt.Errorf("list %s: %w", k.resource.Resource, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if k.GroupKind == secretKind {
				hashValues(o)
			}
			fn(o)
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// hashValues replaces each value of a Secret by its hash, so that a printed difference cannot show
// one.
func hashValues(secret *unstructured.Unstructured) {
	data, _, _ := unstructured.NestedMap(secret.Object, "data")
	for key, value := range data {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // value was decoded from JSON
		}
		data[key] = fmt.Sprintf("sha256:%x", sha256.Sum256(text))
	}
	if data != nil {
		secret.Object["data"] = data
	}
	// kubectl apply stores a copy of the whole object in this annotation.
	const applied = "kubectl.kubernetes.io/last-applied-configuration"
	if annotations := secret.GetAnnotations(); annotations[applied] != "" {
		annotations[applied] = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(annotations[applied])))
		secret.SetAnnotations(annotations)
	}
}

// withoutOwn leaves out the namespaces that every management cluster has.
func withoutOwn(all Objects) Objects {
	own := map[string]bool{"default": true}
	for ref, o := range all {
		// clusterctl labels the namespaces that it makes for providers.
		if _, provider := o.GetLabels()["cluster.x-k8s.io/provider"]; provider && isNamespace(ref) {
			own[ref.Name] = true
		}
	}
	rest := Objects{}
	for ref, o := range all {
		namespace := ref.Namespace
		if isNamespace(ref) {
			namespace = ref.Name
		}
		if !own[namespace] && !strings.HasPrefix(namespace, "kube-") && ref.Name != "kube-root-ca.crt" {
			rest[ref] = o
		}
	}
	return rest
}

func isNamespace(ref Ref) bool { return ref.Group == "" && ref.Kind == "Namespace" }

// isInitLock reports whether o is the ConfigMap with which the kubeadm bootstrap provider lets one
// machine at a time initialise a control plane. It is a lock: a restored one would have no holder
// (cluster-api issue 7794).
func isInitLock(o *unstructured.Unstructured) bool {
	return o.GetKind() == "ConfigMap" && slices.ContainsFunc(o.GetOwnerReferences(),
		func(owner metav1.OwnerReference) bool {
			return owner.Kind == "Cluster" && o.GetName() == owner.Name+"-lock"
		})
}

func secretsOf(v *view, namespace string) dynamic.ResourceInterface {
	return v.client.Resource(schema.GroupVersionResource{Version: "v1",
		Resource: "secrets"}).Namespace(namespace)
}
