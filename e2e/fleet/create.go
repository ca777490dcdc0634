package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Owner is the field manager of what a fleet's author writes, as kubectl or a
// GitOps controller would be.
const Owner = "fleet"

// Options of a live fleet.
type Options struct {
	// Prefix of all namespaces, so that several fleets can share a management cluster.
	Prefix string
	// Shapes of the workload clusters; nil means all Shapes.
	Shapes []Shape
	// Progress is called with one line for each thing that happens.
	Progress func(string)
}

// Create provisions a live fleet and returns its workload clusters once all
// are Available, or as their shape says. It can be run again.
func Create(ctx context.Context, c client.Client, opts Options) ([]types.NamespacedName, error) {
	if opts.Shapes == nil {
		opts.Shapes = Shapes()
	}
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	if err := createShared(ctx, c, opts); err != nil {
		return nil, err
	}
	var keys []types.NamespacedName
	group, groupCtx := errgroup.WithContext(ctx)
	for _, shape := range opts.Shapes {
		key := shape.Key(opts.Prefix)
		keys = append(keys, key)
		group.Go(func() error {
			begin := time.Now()
			objects, err := shape.workloadObjects(opts.Prefix)
			if err != nil {
				return err
			}
			if err := apply(groupCtx, c, objects...); err != nil {
				return err
			}
			state, waitFor := "Available", waitShape
			if shape.ScalingUp {
				state, waitFor = "scaling up", waitScalingUp
			}
			if err := waitFor(groupCtx, c, shape, key); err != nil {
				return err
			}
			if shape.Paused || shape.ScalingUp {
				if err := pause(groupCtx, c, key); err != nil {
					return err
				}
			}
			opts.Progress(fmt.Sprintf("workload cluster %s is %s after %s", key, state,
				time.Since(begin).Round(100*time.Millisecond)))
			return nil
		})
	}
	return keys, group.Wait()
}

// createShared creates what several workload clusters use, and waits until the
// ClusterClasses are reconciled: until then the webhook of Cluster would make
// every creation wait for seconds.
func createShared(ctx context.Context, c client.Client, opts Options) error {
	var namespaces, classes, stock []string
	patchedBy := map[string]string{} // by namespace of the class
	for _, shape := range opts.Shapes {
		if shape.Templates != "" {
			objects, err := shape.sharedObjects(opts.Prefix)
			if err != nil {
				return err
			}
			if err := apply(ctx, c, objects...); err != nil {
				return err
			}
			stock = append(stock, opts.Prefix+shape.ClassNamespace)
			continue
		}
		namespaces = append(namespaces, opts.Prefix+shape.Namespace)
		if shape.ClassNamespace != "" {
			namespaces = append(namespaces, opts.Prefix+shape.ClassNamespace)
			classes = append(classes, opts.Prefix+shape.ClassNamespace)
			patchedBy[opts.Prefix+shape.ClassNamespace] = shape.PatchedBy
		}
	}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		if err := apply(ctx, c, shared(namespace)...); err != nil {
			return err
		}
	}
	slices.Sort(classes)
	classes = slices.Compact(classes)
	for _, namespace := range classes {
		if err := apply(ctx, c, class(namespace, patchedBy[namespace])...); err != nil {
			return err
		}
	}
	for _, namespace := range append(classes, stock...) {
		key := types.NamespacedName{Namespace: namespace, Name: className}
		if err := wait(ctx, "ClusterClass "+key.String(), func(ctx context.Context) error {
			return classReconciled(ctx, c, key)
		}); err != nil {
			return err
		}
	}
	return nil
}

// apply is a server-side apply, as an author of manifests would do it.
func apply(ctx context.Context, c client.Client, objects ...*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(Owner),
			client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
		}
	}
	return nil
}

// pausedKinds are those that pause waits for.
var pausedKinds = []string{"Cluster", "Machine", "MachineSet", "MachineDeployment"}

// pause sets spec.paused and waits until the controllers have acknowledged.
func pause(ctx context.Context, c client.Client, key types.NamespacedName) error {
	cluster := object(coreAPI, "Cluster", key.Namespace, key.Name, fields{})
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`))
	if err := c.Patch(ctx, cluster, patch, client.FieldOwner(Owner)); err != nil {
		return fmt.Errorf("pause %s: %w", key, err)
	}
	return wait(ctx, "the pause of "+key.String(), func(ctx context.Context) error {
		for _, kind := range pausedKinds {
			objects, err := ofWorkload(ctx, c, coreAPI, kind, key)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if err := hasCondition(o, "Paused"); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
