package restore

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

func (r *run) ownersStep(unit string) catalog.Step { return r.copyStep(unit, "owners") }

// completeOwners adds the owners of this unit to shared objects: a Secret that two Clusters own is
// created before either of them.
func (r *run) completeOwners(ctx context.Context, unit string) error {
	var objects []Object
	for _, o := range r.Plan.Shared.Objects {
		if o.Late && r.uid(o.Ref) == "" {
			continue // it is created later, with the owners that live then
		}
		if o.Action != Skip && slices.ContainsFunc(o.Owners,
			func(owner object.Ref) bool { return r.unitOf[owner] == unit }) {
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, r.ownersStep(unit), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		return r.each(objects, func(o Object) error {
			source, err := decodeObject(r.Rows, r.Contents, o.Ref)
			if err != nil {
				return err
			}
			k := r.kinds[o.GroupKind()]
			_, err = request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
				live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
				if err != nil {
					return nil, err
				}
				if err := r.checkOurs(o.Ref, live); err != nil {
					return nil, err
				}
				owned := source.DeepCopy()
				if err := r.setOwners(owned, o, true); err != nil {
					return nil, err
				}
				refs := live.GetOwnerReferences()
				for _, ref := range owned.GetOwnerReferences() {
					if !slices.ContainsFunc(refs, func(l metav1.OwnerReference) bool { return l.UID == ref.UID }) {
						refs = append(refs, ref)
					}
				}
				if len(refs) == len(live.GetOwnerReferences()) {
					return live, nil
				}
				live.SetOwnerReferences(refs)
				if err := r.Journal.Alive(ctx); err != nil { // after the read, as in change
					return nil, err
				}
				return r.Writer.Update(ctx, k, live)
			})
			return err
		})
	})
}

func (r *run) clusterStatusStep(unit string) catalog.Step {
	return r.copyStep(unit, "cluster-status")
}

// completeCluster gives the Cluster its status and then its managedFields, once all other objects
// of the unit are there. Until then the Cluster carries the mark, by which another restore
// recognizes a copy that it may complete.
// Cluster API connects to a workload cluster as soon as the status says that its infrastructure is
// provisioned, paused or not; where the kubeconfig Secret is not there yet, it tries again only
// after 30 s (controllers/clustercache at v1.14), and until then no control plane is Available.
func (r *run) completeCluster(ctx context.Context, u Unit) error {
	var clusters []Object
	for _, o := range u.Objects {
		if o.GroupKind() == capi.Cluster && o.Action == Create {
			clusters = append(clusters, o)
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, r.clusterStatusStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		var made created
		if err := r.each(clusters, func(o Object) error {
			if r.isCurrent(o) {
				return nil
			}
			source, err := decodeObject(r.Rows, r.Contents, o.Ref)
			if err != nil {
				return err
			}
			k := r.kinds[o.GroupKind()]
			live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured,
				error) {
				return r.Reader.Get(ctx, k, o.Namespace, o.Name)
			})
			if err != nil {
				return err
			}
			if err := r.checkOurs(o.Ref, live); err != nil {
				return err
			}
			if err := r.Journal.Alive(ctx); err != nil { // after the read, as in change
				return err
			}
			if live, err = r.applyStatus(ctx, k, live, source); err == nil {
				r.finishLater(ctx, &made, k, u.Name, o, source, live)
			}
			return err
		}); err != nil {
			return err
		}
		return r.applyFields(ctx, h, u.Name, &made, r.each)
	})
}
