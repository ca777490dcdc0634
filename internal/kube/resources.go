package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Resources lists all kinds that the server can list: an object that is about to be deleted may
// own objects of any kind. dead are the groups that do not answer, for example an aggregated API
// whose server is down; their objects cannot be known.
func (r *Reader) Resources(ctx context.Context) (kinds []Kind, dead []string, err error) {
	if err := ctx.Err(); err != nil { // discovery takes no context
		return nil, nil, err
	}
	_, lists, err := discovery.NewDiscoveryClient(r.client).ServerGroupsAndResources()
	if err != nil {
		failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
		if !partly {
			return nil, nil, fmt.Errorf("list resources: %w", err)
		}
		for gv := range failed {
			dead = append(dead, gv.String())
		}
		slices.Sort(dead)
	}
	seen := map[schema.GroupResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, fmt.Errorf("list resources: %w", err)
		}
		for _, res := range list.APIResources {
			id := schema.GroupResource{Group: gv.Group, Resource: res.Name}
			if seen[id] || !listable(res) {
				// the versions of a group come with its preferred one first, and all show the same
				// objects
				continue
			}
			seen[id] = true
			kinds = append(kinds, Kind{
				GroupKind: object.GroupKind{Group: gv.Group, Kind: res.Kind}, Version: gv.Version,
				Resource:   res.Name,
				Namespaced: res.Namespaced, Served: []string{gv.Version},
			})
		}
	}
	return kinds, dead, nil
}

// listable reports whether objects of a resource can be listed and deleted. Events are left out:
// they expire by themselves.
func listable(r metav1.APIResource) bool {
	return slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && r.Kind != "Event"
}
