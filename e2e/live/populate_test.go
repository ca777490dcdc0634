package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// populate provisions the fleets on the source, all at once, and takes the snapshot of the mixed
// fleet. The lived-in fleet goes on living when it returns.
func (f *fixture) populate(ctx context.Context) error {
	c := f.clients[f.source]
	home, err := lab.FindHome()
	if err != nil {
		return err
	}
	templates, err := lab.Templates(ctx, home)
	if err != nil {
		return err
	}
	f.startLiving(ctx, templates)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		_, err := fleet.Create(groupCtx, c, fleet.Options{Prefix: "mixed-", Progress: printProgress})
		return err
	})
	group.Go(func() error {
		_, err := fleet.Create(groupCtx, c, fleet.Options{Shapes: scenarioShapes(templates),
			Progress: printProgress})
		return err
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("provision fleets: %w", err)
	}
	if err := prepare(ctx, c); err != nil {
		return err
	}
	mixed, others, err := f.namespaces(ctx)
	if err != nil {
		return err
	}
	if f.beforeMoves, err = observe.StableInventory(ctx, f.source.Kubeconfig(),
		slices.Concat(mixed, others)...); err != nil {
		return err
	}
	if f.mixed, err = f.snapshot(ctx, mixed...); err != nil {
		return err
	}
	return f.readSecrets(ctx)
}

// namespaces returns the namespaces of the mixed fleet and those of the scenarios. The lived-in
// fleet, which changes all the time, is in neither.
func (f *fixture) namespaces(ctx context.Context) (mixed, others []string, err error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"})
	if err := f.clients[f.source].List(ctx, &list); err != nil {
		return nil, nil, fmt.Errorf("list Namespaces: %w", err)
	}
	for _, ns := range list.Items {
		if strings.HasPrefix(ns.Name, "mixed-") {
			mixed = append(mixed, ns.Name)
		}
	}
	return mixed, []string{selectionNS, classesNS, resumeNS, pausedNS, badNS, killedNS, stockNS}, nil
}

// startLiving begins to provision and to live in the lived-in fleet.
func (f *fixture) startLiving(ctx context.Context, templates string) {
	// It outlives ctx.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- live(ctx, f.clients[f.source], templates)
	}()
	f.lived = sync.OnceValue(func() error { return <-ended })
}

// Namespaces of the scenarios.
const (
	selectionNS, classesNS = "selection", "selection-classes"
	resumeNS               = "resume"
	pausedNS               = "no-release"
	badNS                  = "bad-input"
	killedNS               = "move-killed"
	stockNS                = "stock"
	livedNS                = "lived"
)

// live provisions the fleet that is lived in before it is captured: two workload clusters of
// Cluster API's own templates. One goes through everything that happens in a life, one is deleted
// and created again under its name.
func live(ctx context.Context, c client.Client, templates string) error {
	lived := fleet.Shape{Name: "lived", Namespace: livedNS, ClassNamespace: livedNS, ControlPlanes: 1,
		Pools: []int{1}, Templates: templates}
	reborn := lived
	reborn.Name = "reborn"
	opts := fleet.Options{Shapes: []fleet.Shape{lived, reborn}, Progress: printProgress}
	if _, err := fleet.Create(ctx, c, opts); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return fleet.Live(ctx, c, opts, lived) })
	group.Go(func() error { return fleet.Rebirth(ctx, c, opts, reborn) })
	return group.Wait()
}

// scenarioShapes returns the workload clusters of the scenarios. They are small, since one machine
// provisions all of them at once. The moves leave all but one as they were, so the outage can use
// them again.
func scenarioShapes(templates string) []fleet.Shape {
	return []fleet.Shape{
		{Name: "by-name", Namespace: selectionNS, ClassNamespace: classesNS, ControlPlanes: 1,
			Pools: []int{1}},
		{Name: "by-label", Namespace: selectionNS, ControlPlanes: 1},
		{Name: "left", Namespace: selectionNS, ControlPlanes: 1},
		{Name: "web", Namespace: resumeNS, ControlPlanes: 1, Pools: []int{1}, Addons: true},
		{Name: "web", Namespace: pausedNS, ControlPlanes: 1, Pools: []int{1}, Addons: true,
			HealthChecks: true},
		{Name: "web", Namespace: badNS, ControlPlanes: 1},
		{Name: "web", Namespace: killedNS, ControlPlanes: 1, Pools: []int{1}, Addons: true},
		{Name: "stock", Namespace: stockNS, ClassNamespace: stockNS, ControlPlanes: 3, Pools: []int{2},
			Templates: templates, ScalingUp: true},
	}
}

// outsider owns an object of the fleet and is of a kind that snapshots do not contain.
var outsider = observe.Ref{Group: "coordination.k8s.io", Kind: "Lease", Namespace: badNS,
	Name: "outsider"}

// owned is the object that outsider owns.
var owned = observe.Ref{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachineTemplate",
	Namespace: badNS, Name: "web-control-plane"}

// prepare changes the fleets for single scenarios: a label to select by, and an owner that no
// snapshot contains.
func prepare(ctx context.Context, c client.Client) error {
	cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", selectionNS, "by-label")
	label := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"stage":"chosen"}}}`))
	if err := c.Patch(ctx, cluster, label); err != nil {
		return fmt.Errorf("label Cluster: %w", err)
	}
	lease := object("coordination.k8s.io/v1", outsider.Kind, outsider.Namespace, outsider.Name)
	if err := c.Create(ctx, lease); err != nil {
		return fmt.Errorf("create Lease: %w", err)
	}
	template := object("infrastructure.cluster.x-k8s.io/v1beta2", owned.Kind, owned.Namespace,
		owned.Name)
	if err := c.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
		return fmt.Errorf("get template: %w", err)
	}
	template.SetOwnerReferences(append(template.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: "coordination.k8s.io/v1", Kind: outsider.Kind, Name: outsider.Name,
		UID: lease.GetUID(),
	}))
	if err := c.Update(ctx, template); err != nil {
		return fmt.Errorf("give template an owner: %w", err)
	}
	return nil
}
