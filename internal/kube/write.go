package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mgmtd/mgmtd/internal/retry"
)

// Writer changes objects of a management cluster. Its methods send one request and do not retry:
// the caller reads first and knows what may be repeated.
type Writer struct{ client *rest.RESTClient }

// fieldManagerKey is the key of the field manager in a context.
type fieldManagerKey struct{}

// WithFieldManager returns a context for requests that write under another name than the one of
// this product. The name belongs to single requests and has to reach them through every Writer
// that wraps another one, so it is part of the context.
func WithFieldManager(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, fieldManagerKey{}, name)
}

// FieldManager returns the name under which a write with ctx appears in managedFields.
func FieldManager(ctx context.Context) string {
	if name, ok := ctx.Value(fieldManagerKey{}).(string); ok {
		return name
	}
	return DefaultFieldManager
}

// Create creates obj and returns it as the server stored it. Errors: API errors, AlreadyExists
// among them.
func (w *Writer) Create(ctx context.Context, k Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return send(ctx, w.client.Post().AbsPath(k.Path(obj.GetNamespace())), obj)
}

// Update replaces obj, which must carry the resourceVersion that was read: a change in between is a
// Conflict, and is never overwritten.
func (w *Writer) Update(ctx context.Context, k Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return replace(ctx, w.client.Put(), k, obj, "")
}

// UpdateStatus replaces the status of obj, likewise.
func (w *Writer) UpdateStatus(ctx context.Context, k Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return replace(ctx, w.client.Put(), k, obj, "status")
}

func replace(ctx context.Context, put *rest.Request, k Kind, obj *unstructured.Unstructured,
	sub string) (*unstructured.Unstructured, error) {
	if obj.GetResourceVersion() == "" || obj.GetUID() == "" {
		return nil, errors.New("update object: it carries no resourceVersion or UID to check against")
	}
	path := k.Path(obj.GetNamespace()) + "/" + obj.GetName()
	if sub != "" {
		path += "/" + sub
		obj = withoutManagedFields(obj)
	}
	return send(ctx, put.AbsPath(path), obj)
}

// withoutManagedFields returns obj without its managedFields, and shares the rest with it. In a
// write of a subresource the API server ignores those of the request (apimachinery v0.36,
// util/managedfields/internal/fieldmanager.go, decodeLiveOrNew), but it decodes them: they are as
// large as the object.
func withoutManagedFields(obj *unstructured.Unstructured) *unstructured.Unstructured {
	meta, _ := obj.Object["metadata"].(map[string]any)
	if meta["managedFields"] == nil {
		return obj
	}
	meta = maps.Clone(meta)
	delete(meta, "managedFields")
	obj = &unstructured.Unstructured{Object: maps.Clone(obj.Object)}
	obj.Object["metadata"] = meta
	return obj
}

// Get reads the newest state of one object. NotFound comes as the API error. A connection that
// breaks before the whole answer is there costs a second request: client-go sends one only when
// nothing of the answer was read.
func (r *Reader) Get(ctx context.Context, k Kind, namespace, name string) (
	*unstructured.Unstructured, error) {
	path := k.Path(namespace) + "/" + name
	raw, err := do(ctx, r.client.Get().AbsPath(path))
	var waited net.Error
	timeout := errors.As(err, &waited) && waited.Timeout()
	if Unanswered(err) && !timeout && retry.Sleep(ctx, Backoff(1, err)) == nil {
		raw, err = do(ctx, r.client.Get().AbsPath(path))
	}
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

// Answers returns nil when an API server answers, whatever it says. It sends one request, and does
// not wait for a server that is busy.
func (r *Reader) Answers(ctx context.Context) error {
	_, err := do(ctx, r.client.Get().AbsPath(NamespaceKind.Path("")+"/kube-system").MaxRetries(0))
	if _, answered := errors.AsType[*apierrors.StatusError](err); answered {
		return nil
	}
	return err
}

// do sends a request. Result.Error, unlike Result.Raw, decodes the server's message from the body
// of an error response.
func do(ctx context.Context, req *rest.Request) ([]byte, error) {
	result := req.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// Delete deletes an object if it has this UID and, unless that is empty, this resourceVersion. The
// garbage collector deletes what the object owns. NotFound, and Conflict where UID or
// resourceVersion differ, are returned as API errors.
func (w *Writer) Delete(ctx context.Context, k Kind, namespace, name string, uid types.UID,
	resourceVersion string) error {
	return remove(ctx, w.client.Delete(), k, namespace, name, metav1.DeleteOptions{
		Preconditions: preconditions(uid, resourceVersion)})
}

func preconditions(uid types.UID, resourceVersion string) *metav1.Preconditions {
	p := &metav1.Preconditions{UID: &uid}
	if resourceVersion != "" {
		p.ResourceVersion = &resourceVersion
	}
	return p
}

// remove sends the request of a deletion. The API server reads all options from its body.
func remove(ctx context.Context, request *rest.Request, k Kind, namespace, name string,
	o metav1.DeleteOptions) error {
	background := metav1.DeletePropagationBackground
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	o.PropagationPolicy = &background
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return request.AbsPath(k.Path(namespace) + "/" + name).Body(body).Do(ctx).Error()
}

// PatchMetadata merges metadata into that of an object. With uid and resourceVersion in it, a
// change in between is a Conflict.
func (w *Writer) PatchMetadata(ctx context.Context, k Kind, namespace, name string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	return patchMetadata(ctx, w.client.Patch(types.MergePatchType), k, namespace, name, metadata)
}

func patchMetadata(ctx context.Context, request *rest.Request, k Kind, namespace, name string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	raw, err := do(ctx, request.AbsPath(k.Path(namespace)+"/"+name).Param("fieldManager",
		FieldManager(ctx)).Body(body))
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

func send(ctx context.Context, req *rest.Request, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	body, err := obj.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode object: %w", err)
	}
	raw, err := do(ctx, req.Param("fieldManager", FieldManager(ctx)).Body(body))
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

func decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return u, nil
}

// Prober sends requests to an API server that store nothing.
type Prober struct{ client *rest.RESTClient }

// DryRunCreate runs a create through admission and validation, and stores nothing.
func (p *Prober) DryRunCreate(ctx context.Context, k Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return send(ctx, p.client.Post().AbsPath(k.Path(obj.GetNamespace())).Param("dryRun",
		metav1.DryRunAll), obj)
}

// DryRunUpdate returns what an update of obj would store, and stores nothing.
func (p *Prober) DryRunUpdate(ctx context.Context, k Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return replace(ctx, p.client.Put().Param("dryRun", metav1.DryRunAll), k, obj, "")
}

// DryRunUpdateStatus returns what an update of the status of obj would store, and stores nothing.
func (p *Prober) DryRunUpdateStatus(ctx context.Context, k Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return replace(ctx, p.client.Put().Param("dryRun", metav1.DryRunAll), k, obj, "status")
}

// DryRunPatchMetadata returns what Writer.PatchMetadata would store, and stores nothing.
func (p *Prober) DryRunPatchMetadata(ctx context.Context, k Kind, namespace, name string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	return patchMetadata(ctx, p.client.Patch(types.MergePatchType).Param("dryRun",
		metav1.DryRunAll), k, namespace, name, metadata)
}

// DryRunDelete returns the error of a Writer.Delete of an object, in any version, and deletes
// nothing.
func (p *Prober) DryRunDelete(ctx context.Context, k Kind, namespace, name string,
	uid types.UID) error {
	return remove(ctx, p.client.Delete(), k, namespace, name, metav1.DeleteOptions{
		Preconditions: preconditions(uid, ""), DryRun: []string{metav1.DryRunAll}})
}

// Allowed asks whether our credentials may do verb on the kind, or on one of its subresources, in
// all namespaces.
func (p *Prober) Allowed(ctx context.Context, verb string, k Kind, subresource string) (bool,
	error) {
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": verb, "group": k.Group, "version": k.Version, "resource": k.Resource,
			"subresource": subresource,
		}},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	raw, err := do(ctx, p.client.Post().AbsPath(
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(body))
	if err != nil {
		return false, fmt.Errorf("review access to %s: %w", k.GroupKind, err)
	}
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return false, fmt.Errorf("decode access review: %w", err)
	}
	return answer.Status.Allowed, nil
}
