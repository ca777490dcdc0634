package move

import (
	"context"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/preflight"
)

// coreProvider is the label of Cluster API's own controllers and kinds (cluster-api v1.14,
// core/config/default/kustomization.yaml).
const coreProvider = "cluster-api"

// checkFeatureGates compares the feature gates of both sides. The dry-runs of the copy find what a
// webhook refuses; controllers that are off refuse nothing, and leave a workload cluster without
// them. That Deployments must not be listed is reported elsewhere (autoscalers, platforms).
func checkFeatureGates(ctx context.Context, c *checker) error {
	source, err := preflight.ReadFeatureGates(ctx, c.Source.Reader)
	var target preflight.FeatureGates
	if err == nil {
		target, err = preflight.ReadFeatureGates(ctx, c.Target.Reader)
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range preflight.CompareFeatureGates(source, target, c.gateUse) {
		c.add(f)
	}
	return nil
}

// gateUse returns what needs a feature gate of a provider. The gate of an infrastructure provider
// is about its own kinds; those of kubeadm are about kinds of Cluster API, too.
func (c *checker) gateUse(provider, gate string) preflight.GateUse {
	kinds, units := map[string]bool{}, map[string]bool{}
	var shared []*graph.Node
	for _, n := range c.nodes {
		if !capi.NeedsFeatureGate(n.GroupKind(), gate) {
			continue
		}
		k, _ := kube.FindKind(c.Source.Kinds, n.GroupKind())
		own := k.Provider == provider
		if !own && (k.Provider != coreProvider || strings.HasPrefix(provider, "infrastructure-")) {
			continue
		}
		kinds[n.GroupKind().String()] = true
		if n.Unit != "" {
			units[n.Unit] = true
		} else {
			shared = append(shared, n)
		}
	}
	if len(shared) > 0 {
		c.addUsers(units, shared)
	}
	return preflight.GateUse{Units: slices.Sorted(maps.Keys(units)),
		Kinds: slices.Sorted(maps.Keys(kinds))}
}

// addUsers adds the units that need one of some shared objects.
func (c *checker) addUsers(units map[string]bool, shared []*graph.Node) {
	of := map[string][]*graph.Node{}
	for _, n := range c.nodes {
		if n.Unit != "" && !units[n.Unit] {
			of[n.Unit] = append(of[n.Unit], n)
		}
	}
	for unit, nodes := range of {
		for _, n := range c.graph.Closure(nodes) {
			if slices.Contains(shared, n) {
				units[unit] = true
				break
			}
		}
	}
}
