package kube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/object"
)

// mostChangedKinds is the largest number of changed CRDs that are read one by one. More changes
// are read with all other CRDs in one request.
const mostChangedKinds = 8

// Kind is a kind that a management cluster serves, at its storage version: objects are read and
// written at that version.
type Kind struct {
	object.GroupKind
	// storage version, or a served one where that is not served
	Version    string   `json:"version"`
	Resource   string   `json:"resource"`           // lower-case plural
	Namespaced bool     `json:"namespaced"`         //
	Status     bool     `json:"status,omitempty"`   // has a status subresource
	Served     []string `json:"served"`             // all served versions
	Generation int64    `json:"generation"`         // of the CRD, 0 for core
	Provider   string   `json:"provider,omitempty"` // label cluster.x-k8s.io/provider of the CRD
	// belongs to Cluster API: labelled by clusterctl or with a contract version
	Contract bool `json:"contract,omitempty"`
	// Controller is the namespace of the controllers of its provider, empty where no CRD says it.
	Controller string `json:"controller,omitempty"`
}

// APIVersion returns the apiVersion of objects of the kind.
func (k Kind) APIVersion() string {
	if k.Group == "" {
		return k.Version
	}
	return k.Group + "/" + k.Version
}

// Path returns the API path of all objects of the kind, or of those in one namespace.
func (k Kind) Path(namespace string) string {
	p := "/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		p = "/api/" + k.Version
	}
	if k.Namespaced && namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + k.Resource
}

// The core kinds that a snapshot reads.
var (
	// its status is the API server's own
	NamespaceKind = Kind{GroupKind: object.GroupKind{Kind: "Namespace"}, Version: "v1",
		Resource: "namespaces", Served: []string{"v1"}}
	SecretKind = Kind{GroupKind: object.GroupKind{Kind: "Secret"}, Version: "v1", Resource: "secrets",
		Namespaced: true, Served: []string{"v1"}}
	ConfigMapKind = Kind{GroupKind: object.GroupKind{Kind: "ConfigMap"}, Version: "v1",
		Resource: "configmaps", Namespaced: true, Served: []string{"v1"}}
	// LeaseKind is the kind that components of the API server renew every few seconds.
	LeaseKind = Kind{GroupKind: object.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"},
		Version:  "v1",
		Resource: "leases", Namespaced: true, Served: []string{"v1"}}
	// DeploymentKind is the kind in which controllers run.
	DeploymentKind = Kind{GroupKind: object.GroupKind{Group: "apps", Kind: "Deployment"},
		Version: "v1", Resource: "deployments", Namespaced: true, Status: true, Served: []string{"v1"}}
	crdKind = Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
		Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}
)

// Labels by which clusterctl and the Cluster API contract mark the CRDs that belong to them
// (Cluster API book: developer/providers/contracts/clusterctl, and "contract versions" of each
// provider type).
const (
	clusterctlLabel     = "clusterctl.cluster.x-k8s.io"
	providerLabel       = "cluster.x-k8s.io/provider"
	contractLabelPrefix = "cluster.x-k8s.io/v"
)

// injectCA is the annotation of CRDs with a conversion webhook that names the Certificate of the
// webhook as "<namespace>/<name>". clusterctl writes the namespace of a provider there and into the
// webhook itself (cluster-api v1.14, cmd/clusterctl/client/repository/components.go,
// fixTargetNamespace).
const injectCA = "cert-manager.io/inject-ca-from"

// KindCache caches the kinds of management clusters for all connections of a process. The zero
// value is ready to use. It may be used concurrently.
type KindCache struct {
	mu    sync.Mutex
	kinds map[types.UID]*crdCache
}

// of returns the cache of one management cluster; a nil KindCache returns an empty one.
func (k *KindCache) of(uid types.UID) *crdCache {
	if k == nil {
		return &crdCache{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[types.UID]*crdCache{}
	}
	if k.kinds[uid] == nil {
		k.kinds[uid] = &crdCache{}
	}
	return k.kinds[uid]
}

// crdCache caches the kind of each CustomResourceDefinition, by name. An entry is valid while the
// whole metadata of the CRD is unchanged: an etcd that was restored or cloned may give the same
// UID and resourceVersion to another CRD, but not the same labels, generation and times of change.
// A map in the cache is never written to.
type crdCache struct {
	mu    sync.Mutex
	kinds map[string]cachedKind
}

func (c *crdCache) get() map[string]cachedKind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds
}

func (c *crdCache) set(kinds map[string]cachedKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds = kinds
}

// cachedKind is the kind of one CRD, with a hash of the metadata that it was read with.
type cachedKind struct {
	metadata [sha256.Size]byte
	kind     Kind
	served   bool
}

func metadataSum(raw []byte) [sha256.Size]byte {
	return sha256.Sum256([]byte(gjson.GetBytes(raw, "metadata").Raw))
}

// Kinds lists the kinds of all CustomResourceDefinitions and the core kinds, sorted. The first
// call reads all CRDs. Later calls on the same management cluster read the metadata of all CRDs,
// and only the changed ones completely: a CRD is many times larger than its Kind.
func (r *Reader) Kinds(ctx context.Context) ([]Kind, error) {
	cached := r.kinds.get()
	current, changed := map[string]cachedKind{}, []string{}
	whole := cached == nil
	if !whole {
		_, err := r.List(ctx, crdKind, ListOptions{Metadata: true}, func(raw []byte) error {
			name := gjson.GetBytes(raw, "metadata.name").String()
			was, ok := cached[name]
			if ok && was.metadata == metadataSum(raw) {
				current[name] = was
			} else {
				changed = append(changed, name)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list kinds: %w", err)
		}
	}
	if whole || len(changed) > mostChangedKinds {
		clear(current)
		changed = []string{""}
	}
	for _, name := range changed { // a CRD that is gone by now is in no list
		_, err := r.List(ctx, crdKind, ListOptions{Name: name}, func(raw []byte) error {
			kind, served, err := kindOfCRD(raw)
			current[gjson.GetBytes(raw, "metadata.name").String()] = cachedKind{metadata: metadataSum(raw),
				kind: kind, served: served}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list kinds: %w", err)
		}
	}
	r.kinds.set(current)
	kinds := []Kind{NamespaceKind, SecretKind, ConfigMapKind}
	for _, k := range current {
		if k.served {
			k.kind.Served = slices.Clone(k.kind.Served)
			kinds = append(kinds, k.kind)
		}
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
	shareControllers(kinds)
	return kinds, nil
}

// shareControllers completes Controller: a CRD of one version has no conversion webhook, and its
// provider has its controllers where those of its other kinds are. The kinds are sorted.
func shareControllers(kinds []Kind) {
	namespaces := map[string]string{}
	for _, k := range kinds {
		if namespaces[k.Provider] == "" {
			namespaces[k.Provider] = k.Controller
		}
	}
	for i := range kinds {
		if k := &kinds[i]; k.Controller == "" && k.Provider != "" {
			k.Controller = namespaces[k.Provider]
		}
	}
}

func kindOfCRD(raw []byte) (Kind, bool, error) {
	var crd struct {
		Metadata struct {
			Name        string            `json:"name"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
			Generation  int64             `json:"generation"`
			Deleting    *string           `json:"deletionTimestamp"`
		} `json:"metadata"`
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind   string `json:"kind"`
				Plural string `json:"plural"`
			} `json:"names"`
			Scope      string     `json:"scope"`
			Conversion conversion `json:"conversion"`
			Versions   []struct {
				Name         string `json:"name"`
				Served       bool   `json:"served"`
				Storage      bool   `json:"storage"`
				Subresources struct {
					Status *struct{} `json:"status"`
				} `json:"subresources"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &crd); err != nil {
		return Kind{}, false, fmt.Errorf("decode CustomResourceDefinition: %w", err)
	}
	k := Kind{
		GroupKind:  object.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind},
		Resource:   crd.Spec.Names.Plural,
		Namespaced: crd.Spec.Scope == "Namespaced",
		Generation: crd.Metadata.Generation,
		Provider:   crd.Metadata.Labels[providerLabel],
		Contract:   isContract(crd.Metadata.Labels),
		Controller: controllerOf(crd.Metadata.Annotations, crd.Spec.Conversion),
	}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			k.Served = append(k.Served, v.Name)
		}
		if v.Storage {
			k.Version, k.Status = v.Name, v.Subresources.Status != nil
		}
	}
	// A storage version that is not served has no path to read it by; any served one gives the
	// same objects, converted.
	if len(k.Served) > 0 && !slices.Contains(k.Served, k.Version) {
		k.Version = k.Served[len(k.Served)-1]
	}
	return k, len(k.Served) > 0, nil
}

// conversion is where the conversion webhook of a CRD is served.
type conversion struct {
	Webhook struct {
		ClientConfig struct {
			Service struct {
				Namespace string `json:"namespace"`
			} `json:"service"`
		} `json:"clientConfig"`
	} `json:"webhook"`
}

// controllerOf returns the namespace in which the webhook of a CRD runs; "" when it has none.
func controllerOf(annotations map[string]string, c conversion) string {
	if ns := c.Webhook.ClientConfig.Service.Namespace; ns != "" {
		return ns
	}
	ns, _, _ := strings.Cut(annotations[injectCA], "/")
	return ns
}

func isContract(labels map[string]string) bool {
	if _, ok := labels[clusterctlLabel]; ok {
		return true
	}
	for l := range labels {
		if strings.HasPrefix(l, contractLabelPrefix) {
			return true
		}
	}
	return false
}
