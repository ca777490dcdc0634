package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/task"
)

// AnnotationDeleteForMove signals to delete webhooks that an object leaves this management cluster
// and is not to be destroyed (clusterctl contract).
const AnnotationDeleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"

// Remover deletes objects of a management cluster.
type Remover interface {
	PatchMetadata(ctx context.Context, k kube.Kind, namespace, name string, metadata map[string]any) (
		*unstructured.Unstructured, error)
	Delete(ctx context.Context, k kube.Kind, namespace, name string, uid types.UID,
		resourceVersion string) error
}

// Remove deletes an object without ever showing it to a controller as being deleted: it empties
// the finalizers and deletes the object in the version of that answer, or not at all. An object
// that has none is deleted in its version, and gets AnnotationDeleteForMove only when that is
// refused. check is called before each try and must accept the object. An object that has the UID
// of was, and its resourceVersion unless that is empty, needs no check, and is not read first. The
// finalizers of was are those in that version, or any where they are not known. Infrastructure is
// not touched; what the object owns must be gone before. An object that is not there is no error.
func Remove(ctx context.Context, reader Reader, w Remover, k kube.Kind, ref object.Ref,
	was metav1.ObjectMeta, check func(live *unstructured.Unstructured) error) error {
	r := removal{w: w, kind: k, ref: ref}
	_, err := request(ctx, k.GroupKind, func() (*unstructured.Unstructured, error) {
		if was.UID != "" {
			// Another version is a conflict, and another UID is one or not valid, which depends on the
			// kind.
			err := r.remove(ctx, was.UID, was.ResourceVersion, len(was.Finalizers) > 0)
			if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
				return nil, err
			}
		}
		live, err := reader.Get(ctx, k, ref.Namespace, ref.Name)
		if err == nil {
			err = check(live)
		}
		if err != nil {
			return nil, err
		}
		return nil, r.remove(ctx, live.GetUID(), live.GetResourceVersion(), len(live.GetFinalizers()) > 0)
	})
	if apierrors.IsNotFound(err) && !isDenied(err) {
		return nil // what was being deleted already is gone with its last finalizer
	}
	return err
}

// removal is the removal of one object.
type removal struct {
	w    Remover
	kind kube.Kind
	ref  object.Ref
}

// remove deletes the object, after a patch if it has finalizers, or if the deletion is refused
// without the annotation. Any version counts when it is empty: it may have finalizers in another.
func (r removal) remove(ctx context.Context, uid types.UID, version string, finalizers bool) error {
	var refused error
	if !finalizers && version != "" {
		refused = r.w.Delete(ctx, r.kind, r.ref.Namespace, r.ref.Name, uid, version)
		if !isRefused(refused) {
			return refused
		}
	}
	metadata := map[string]any{"uid": uid, "finalizers": nil,
		"annotations": map[string]any{AnnotationDeleteForMove: ""}}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	live, err := r.w.PatchMetadata(ctx, r.kind, r.ref.Namespace, r.ref.Name, metadata)
	if isRefused(err) && refused != nil {
		return refused // the patch was for the deletion alone
	}
	if err != nil {
		return err
	}
	return r.w.Delete(ctx, r.kind, r.ref.Namespace, r.ref.Name, live.GetUID(),
		live.GetResourceVersion())
}

// isRefused reports whether an API server refuses a deletion, which a webhook may allow once the
// object has AnnotationDeleteForMove.
func isRefused(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return isDenied(err) || answered && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) &&
		!kube.Transient(err)
}

// isDenied reports whether a webhook has denied a request. Its answer has any code
// (k8s.io/apiserver v0.36, pkg/admission/plugin/webhook/errors/statuserror.go).
func isDenied(err error) bool {
	s, answered := errors.AsType[*apierrors.StatusError](err)
	return answered && strings.Contains(s.ErrStatus.Message, "admission webhook ") &&
		strings.Contains(s.ErrStatus.Message, " denied the request")
}

// unlisted is the finding about a kind that our credentials may not list. It is about everything
// that is deleted: any of it may own an object of that kind.
func unlisted(k kube.Kind) object.Finding {
	return object.Finding{Severity: object.Error, Code: object.CodeNotAllowed,
		Message: "the credentials may not " + preflight.Right{Verb: "list"}.On(k) + ": whether the " +
			"garbage collector would delete objects of that kind is not known",
		Hint: "grant the right to list all resources, or use credentials of an administrator"}
}

// dependantLists is how many kinds are listed at once.
const dependantLists = 8

// lister lists all that a management cluster has.
type lister interface {
	Reader
	Resources(ctx context.Context) (kinds []kube.Kind, dead []string, err error)
}

// Dependants finds the objects of a management cluster with an owner among toDelete, by UID, that
// are not planned to leave together with it: the garbage collector would delete them as soon as
// their last owner is gone. Each one is a blocking finding gc-would-cascade for the units of its
// owners; unitOf returns the unit of an object in toDelete. A kind that may not be listed is a
// finding without a unit, and blocks all of them. It lists all kinds, in the namespaces in which
// toDelete may own something.
func Dependants(ctx context.Context, on lister, toDelete map[string]object.Ref,
	planned func(ref, owner object.Ref) bool, unitOf func(object.Ref) string) (
	[]object.Finding, error) {
	if len(toDelete) == 0 {
		return nil, nil
	}
	kinds, dead, err := on.Resources(ctx)
	if err != nil {
		return nil, err
	}
	d := &dependants{on: on, toDelete: toDelete, planned: planned, unitOf: unitOf}
	for _, group := range dead {
		d.add(object.Finding{Severity: object.Warning, Code: object.CodeAPIDead,
			Message: "the API " + group + " does not answer; whether its objects are owned by what " +
				"leaves is not known",
			Hint: "mend or remove its APIService"})
	}
	namespaces, clusterScoped := ownedIn(toDelete)
	g, ctx := task.WithContext(ctx)
	g.SetLimit(dependantLists)
	for _, k := range kinds {
		if k.Namespaced {
			g.Go(func() error { return d.list(ctx, k, namespaces) })
		} else if clusterScoped {
			g.Go(func() error { return d.list(ctx, k, nil) })
		}
	}
	// first: in which order a return reads a variable and calls a function is not specified
	err = g.Wait()
	return d.findings, err
}

// ownedIn returns the namespaces in which objects may own others, none for all of them, and whether
// they may own what is in no namespace. What is in a namespace owns only what is in the same one;
// the garbage collector takes an owner in another namespace for one that is gone
// (kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents).
func ownedIn(owners map[string]object.Ref) (namespaces []string, clusterScoped bool) {
	for _, ref := range owners {
		if ref.Namespace == "" {
			return nil, true
		}
		namespaces = append(namespaces, ref.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), false
}

// dependants is one search of Dependants.
type dependants struct {
	on       lister
	toDelete map[string]object.Ref
	planned  func(ref, owner object.Ref) bool
	unitOf   func(object.Ref) string

	mu       sync.Mutex
	findings []object.Finding
}

func (d *dependants) add(f object.Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, f)
}

// owned is the finding about an object that some of toDelete own. It is about the units of all of
// them: whichever is removed last takes the object along.
func (d *dependants) owned(ref object.Ref, owners []object.Ref) object.Finding {
	f := object.Finding{Severity: object.Error, Code: object.CodeGCWouldCascade, Ref: ref,
		Message: fmt.Sprintf("it is owned by %s, which leaves, and stays behind itself: the "+
			"garbage collector would delete it", owners[0]),
		Hint: "move it along (label clusterctl.cluster.x-k8s.io/move on it or its CRD), or " +
			"take the owner reference off it"}
	var units []string
	for _, owner := range owners {
		if unit := d.unitOf(owner); unit != "" {
			units = append(units, unit)
		}
	}
	if slices.Sort(units); len(units) > 0 {
		units = slices.Compact(units)
		f.Unit, f.Users = units[0], units[1:]
	}
	return f
}

// list looks at the objects of a kind in some namespaces, or in all of them.
func (d *dependants) list(ctx context.Context, k kube.Kind, namespaces []string) error {
	_, err := d.on.List(ctx, k, kube.ListOptions{Metadata: true, Namespaces: namespaces},
		func(raw []byte) error {
			meta := gjson.GetBytes(raw, "metadata")
			ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: meta.Get("namespace").String(),
				Name: meta.Get("name").String()}
			var owners []object.Ref
			meta.Get("ownerReferences").ForEach(func(_, o gjson.Result) bool {
				owner, ok := d.toDelete[o.Get("uid").String()]
				if ok && !d.planned(ref, owner) {
					owners = append(owners, owner)
				}
				return true
			})
			if len(owners) > 0 {
				d.add(d.owned(ref, owners))
			}
			return nil
		})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return nil // gone since discovery
	case apierrors.IsForbidden(err):
		d.add(unlisted(k))
		return nil
	}
	return err
}
