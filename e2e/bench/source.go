package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lists is how many LISTs the floor asks for at once.
const lists = 4

// kind is a kind that a snapshot reads.
type kind struct {
	schema.GroupVersionKind
	resource string
	status   bool // it has a status of its own to write
}

func (k kind) path() string {
	if k.Group == "" {
		return "/api/v1/" + k.resource
	}
	return "/apis/" + k.Group + "/" + k.Version + "/" + k.resource
}

// object is one that can be changed.
type object struct {
	kind            kind
	namespace, name string
	workload        string
}

// kinds are those of Cluster API, by the labels of their CRDs, and those of core that a snapshot
// takes from.
func (b *bench) kinds(ctx context.Context) ([]kind, error) {
	if err := apiextensionsv1.AddToScheme(b.client.Scheme()); err != nil {
		return nil, fmt.Errorf("add CRDs: %w", err)
	}
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := b.client.List(ctx, &crds); err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	list := []kind{}
	for name, k := range map[string]string{"namespaces": "Namespace", "secrets": "Secret",
		"configmaps": "ConfigMap"} {
		list = append(list, kind{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: k}, resource: name})
	}
	for _, crd := range crds.Items {
		ours := slices.ContainsFunc(slices.Collect(maps.Keys(crd.Labels)), func(l string) bool {
			return strings.HasPrefix(l, "cluster.x-k8s.io/v") || l == "clusterctl.cluster.x-k8s.io"
		})
		for _, v := range crd.Spec.Versions {
			if ours && v.Storage && v.Served {
				list = append(list, kind{
					GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name,
						Kind: crd.Spec.Names.Kind}, resource: crd.Spec.Names.Plural,
					status: v.Subresources != nil && v.Subresources.Status != nil})
			}
		}
	}
	return list, nil
}

// renew writes a Lease, as the components of a management cluster do all the time.
func (b *bench) renew(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		GenerateName: "bench-"}}
	if err := b.client.Create(ctx, lease); err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	return nil
}

// listAll is the floor of reading: LIST of all kinds, as the API server gives it fastest, with
// nothing done with it.
func (b *bench) listAll(ctx context.Context, kinds []kind) error {
	raw, err := b.restFor(b.config)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(lists)
	for _, k := range kinds {
		g.Go(func() error {
			body, err := raw.Get().AbsPath(k.path()).Stream(ctx)
			if err != nil {
				return fmt.Errorf("list %s: %w", k.Kind, err)
			}
			defer body.Close()
			_, err = io.Copy(io.Discard, body)
			return err
		})
	}
	return g.Wait()
}

// objects are all that the source has of these kinds.
func (b *bench) objects(ctx context.Context, kinds []kind) (all []object, err error) {
	for _, k := range kinds {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		if err := b.client.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("list %s: %w", k.Kind, err)
		}
		for _, o := range list.Items {
			all = append(all, object{kind: k, namespace: o.Namespace, name: o.Name,
				workload: o.Labels["cluster.x-k8s.io/cluster-name"]})
		}
	}
	return all, nil
}

// byUnit groups the objects that a workload cluster's label names.
func byUnit(all []object) map[string][]object {
	units := map[string][]object{}
	for _, o := range all {
		if o.workload != "" {
			units[o.namespace+"/"+o.workload] = append(units[o.namespace+"/"+o.workload], o)
		}
	}
	return units
}

func pickUnits(random *rand.Rand, units map[string][]object, n int) (picked []object) {
	names := slices.Sorted(maps.Keys(units))
	for _, i := range random.Perm(len(names))[:n] {
		picked = append(picked, units[names[i]]...)
	}
	return picked
}

func pickObjects(random *rand.Rand, units map[string][]object, n int) (picked []object) {
	var all []object
	for _, name := range slices.Sorted(maps.Keys(units)) {
		all = append(all, units[name]...)
	}
	for _, i := range random.Perm(len(all))[:min(n, len(all))] {
		picked = append(picked, all[i])
	}
	return picked
}

// touch changes an annotation of objects.
func (b *bench) touch(ctx context.Context, objects []object) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, o := range objects {
		g.Go(func() error {
			u := &metav1.PartialObjectMetadata{}
			u.SetGroupVersionKind(o.kind.GroupVersionKind)
			u.Namespace, u.Name = o.namespace, o.name
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"bench.mgmtd.dev/touched":"%d"}}}`,
				time.Now().UnixNano())
			if err := b.client.Patch(ctx, u, client.RawPatch("application/merge-patch+json",
				[]byte(patch))); err != nil {
				return fmt.Errorf("change %s %s/%s: %w", o.kind.Kind, o.namespace, o.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}
