package kube

import (
	"context"
	"fmt"
	"sort"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Provider is an installed Cluster API provider, as recorded in clusterctl's inventory.
type Provider struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // for example infrastructure-openstack
	Type      string `json:"type"`
	Version   string `json:"version"`
}

// providerGroupKind is the kind of clusterctl's inventory.
var providerGroupKind = object.GroupKind{Group: "clusterctl.cluster.x-k8s.io", Kind: "Provider"}

// Providers reads the provider inventory with clusterctl's own client. Management clusters that
// were not set up by clusterctl have none: then the list is empty and no error. kinds is the answer
// of Reader.Kinds; without it an absent inventory would cost clusterctl's 15 s of retries.
func (m *Mgmt) Providers(ctx context.Context, kinds []Kind) ([]Provider, error) {
	if _, ok := FindKind(kinds, providerGroupKind); !ok {
		return nil, nil
	}
	c := cluster.New(cluster.Kubeconfig{Path: m.opts.KubeconfigFile, Context: m.opts.Context}, nil)
	list, err := c.ProviderInventory().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	providers := make([]Provider, 0, len(list.Items))
	for _, p := range list.Items {
		providers = append(providers, Provider{Namespace: p.Namespace, Name: p.ManifestLabel(),
			Type: p.Type, Version: p.Version})
	}
	sort.Slice(providers, func(i, j int) bool { return providers[i].Name < providers[j].Name })
	return providers, nil
}

// FindKind returns the kind of that group and name.
func FindKind(kinds []Kind, gk object.GroupKind) (Kind, bool) {
	for _, k := range kinds {
		if k.GroupKind == gk {
			return k, true
		}
	}
	return Kind{}, false
}
