package observe

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// CheckOwners checks every owner reference of every object of Inventory. Each must name a live
// object with that UID, or the garbage collector deletes the dependant sooner or later. It returns
// the number of references and the problems.
func CheckOwners(ctx context.Context, kubeconfig string, namespaces ...string) (references int,
	problems []string, err error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return 0, nil, err
	}
	objects, err := v.inventory(ctx, namespaces)
	if err != nil {
		return 0, nil, err
	}
	lookup := &ownerLookup{view: v, known: objects}
	for _, ref := range objects.Refs() {
		for _, owner := range objects[ref].GetOwnerReferences() {
			references++
			live, err := lookup.uid(ctx, ref.Namespace, owner)
			switch {
			case err != nil:
				return 0, nil, err
			case live == "":
				problems = append(problems, fmt.Sprintf("%s: its owner %s/%s does not exist", ref, owner.Kind,
					owner.Name))
			case live != string(owner.UID):
				problems = append(problems, fmt.Sprintf("%s: its owner %s/%s has another UID", ref, owner.Kind,
					owner.Name))
			}
		}
	}
	return references, problems, nil
}

// ownerLookup finds owners among known objects, then on the API server.
type ownerLookup struct {
	view   *view
	known  Objects
	mapper meta.RESTMapper // made when an owner is of another kind
}

// uid returns the UID of the live owner, or "" when there is none. An owner is in the namespace of
// its dependant or cluster-scoped.
func (l *ownerLookup) uid(ctx context.Context, namespace string, owner metav1.OwnerReference) (
	string, error) {
	group, _, grouped := strings.Cut(owner.APIVersion, "/")
	if !grouped {
		group = ""
	}
	for _, ns := range []string{namespace, ""} {
		if o, ok := l.known[Ref{Group: group, Kind: owner.Kind, Namespace: ns, Name: owner.Name}]; ok {
			return string(o.GetUID()), nil
		}
	}
	if l.mapper == nil {
		client, err := discovery.NewDiscoveryClientForConfig(l.view.config)
		if err != nil {
			return "", fmt.Errorf("make discovery client: %w", err)
		}
		groups, err := restmapper.GetAPIGroupResources(client)
		if err != nil {
			return "", fmt.Errorf("discover kinds: %w", err)
		}
		l.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	}
	mapping, err := l.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: owner.Kind})
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("map kind %s: %w", owner.Kind, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	o, err := l.view.client.Resource(mapping.Resource).Namespace(namespace).Get(ctx, owner.Name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get owner %s %s: %w", owner.Kind, owner.Name, err)
	}
	return string(o.GetUID()), nil
}

const (
	pausedAnnotation    = "cluster.x-k8s.io/paused"
	operationAnnotation = OwnAnnotations + "operation"
	wasPausedAnnotation = OwnAnnotations + "was-paused"
)

// CheckPaused reports what is paused and was not, what is not paused and was, and which annotations
// of a restore were left behind.
func CheckPaused(before, after Objects) []string {
	var problems []string
	for _, ref := range after.Refs() {
		is := after[ref]
		for _, annotation := range []string{operationAnnotation, wasPausedAnnotation} {
			if _, ok := is.GetAnnotations()[annotation]; ok {
				problems = append(problems, fmt.Sprintf("%s: annotation %s was left", ref, annotation))
			}
		}
		was := before[ref]
		for _, how := range []struct {
			name   string
			paused func(*unstructured.Unstructured) bool
		}{
			{"spec.paused", specPaused}, {"annotation " + pausedAnnotation, annotatedPaused},
			{"condition Paused", conditionPaused},
		} {
			switch wasPaused := was != nil && how.paused(was); {
			case how.paused(is) && !wasPaused:
				problems = append(problems, fmt.Sprintf("%s: paused by %s and was not", ref, how.name))
			case !how.paused(is) && wasPaused:
				problems = append(problems, fmt.Sprintf("%s: was paused by %s and is not", ref, how.name))
			}
		}
	}
	return problems
}

// Paused reports whether the pause switch of the object itself is set.
func Paused(o *unstructured.Unstructured) bool { return specPaused(o) || annotatedPaused(o) }

func specPaused(o *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(o.Object, "spec", "paused")
	return paused
}

func annotatedPaused(o *unstructured.Unstructured) bool {
	_, paused := o.GetAnnotations()[pausedAnnotation]
	return paused
}

// conditionPaused reports whether a controller has acknowledged the pause.
func conditionPaused(o *unstructured.Unstructured) bool {
	return conditionStatus(o, "Paused") == "True"
}
