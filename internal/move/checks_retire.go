package move

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// dryRuns is how many objects of the source are asked about at once.
	dryRuns = 16
	// dryRunTimeout bounds one request: a webhook may hang for its own 10 s.
	dryRunTimeout = 15 * time.Second
)

// dryRemoval is a restore.Remover that removes nothing: it sends the requests of a removal as
// dry-runs, and keeps what the source answers. It is for one object.
type dryRemoval struct {
	prober Prober
	node   *graph.Node
	// patch and del are the words of what refuses to take off the finalizers, and to delete it.
	patch, del string
	unknown    bool // a webhook supports no dry-run
	// patient: a webhook that does not answer is an error, which restore.Remove tries again, and not
	// what it refuses.
	patient bool
}

var _ restore.Remover = (*dryRemoval)(nil)

// PatchMetadata implements restore.Remover. Any version counts: a controller may have written the
// object since it was captured. When it is refused, the deletion is tried all the same.
func (r *dryRemoval) PatchMetadata(ctx context.Context, k kube.Kind, namespace, name string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	delete(metadata, "resourceVersion")
	var live *unstructured.Unstructured
	words, err := r.answer(ctx, k, func(ctx context.Context) (err error) {
		live, err = r.prober.DryRunPatchMetadata(ctx, k, namespace, name, metadata)
		return err
	})
	r.patch = words
	if live == nil {
		live = &unstructured.Unstructured{}
		live.SetUID(types.UID(r.node.UID))
	}
	return live, err
}

// Delete implements restore.Remover. Any version counts: a dry-run of a patch makes none.
func (r *dryRemoval) Delete(ctx context.Context, k kube.Kind, namespace, name string, uid types.UID,
	_ string) (err error) {
	r.del, err = r.answer(ctx, k, func(ctx context.Context) error {
		return r.prober.DryRunDelete(ctx, k, namespace, name, uid)
	})
	return err
}

// answer sends a dry-run and returns the words of what refuses it, "" when nothing does. It returns
// errors that say nothing of it: of an object that is gone, and of a server that does not answer. A
// conflict says that the object was made again since. Our rights are checked elsewhere.
func (r *dryRemoval) answer(ctx context.Context, k kube.Kind, send func(context.Context) error) (
	string, error) {
	once, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	err := send(once)
	_, answered := errors.AsType[*apierrors.StatusError](err)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil, isNoRight(err), apierrors.IsConflict(err):
		return "", nil
	case r.patient && isWebhook(err):
		return "", err
	case errors.Is(err, context.DeadlineExceeded): // a webhook hangs
		return fmt.Sprintf("no answer within %s", dryRunTimeout), nil
	case apierrors.IsNotFound(err), !answered, kube.Transient(err) && !isWebhook(err):
		return "", err
	case isNoDryRun(err):
		r.unknown = true
		return "", nil
	}
	return kube.SafeText(k.GroupKind, err), nil
}

// isWebhook reports whether err says that a webhook did not answer. Each try may take seconds.
func isWebhook(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "webhook")
}

// isNoDryRun reports whether err says that a webhook supports no dry-run.
func isNoDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "dry run")
}

// isNoRight reports whether err is a refusal of authorization, and not of admission (apiserver
// v0.36, pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage).
func isNoRight(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot `)
}

// What a retirement would be refused. The second request of a removal cannot be tried exactly: in
// the first one, which is a dry-run too, nothing was annotated.
var (
	refusesPatch = trouble{severity: object.Error, code: object.CodeRetireRefused,
		what: "the source refuses to take off the finalizers before the retirement",
		means: "the workload cluster would be released on the target, and its paused copy would stay " +
			"on the source",
		hint: "change what refuses it, or exempt the credentials of the move from it as long as it runs"}
	refusesDelete = trouble{severity: object.Error, code: object.CodeRetireRefused,
		what: "the source refuses the deletion at the retirement", means: refusesPatch.means,
		hint: refusesPatch.hint}
	refusesOwners = trouble{severity: object.Error, code: object.CodeRetireRefused,
		what:  "the source refuses to take the workload cluster off the owners of what it shares",
		means: refusesPatch.means, hint: refusesPatch.hint}
	// providerRefuses is a warning. By the contract of clusterctl, a webhook of a provider allows the
	// deletion of an object with the annotation delete-for-move, for example of cluster-api-provider-
	// azure (https://github.com/kubernetes-sigs/cluster-api/issues/8109).
	providerRefuses = trouble{severity: object.Warning, code: object.CodeRetireRefused,
		what: "a webhook of a provider refuses the deletion at the retirement",
		means: "it may allow that once the object has the annotation " + restore.AnnotationDeleteForMove +
			"; if it does not, the paused copy stays on the source after the release",
		hint: "read the documentation of the provider, or begin with one workload cluster that matters " +
			"little"}
	notTried = trouble{severity: object.Info, code: object.CodeNotChecked,
		what:  "what the source lets the move remove at the end is not known of all kinds",
		means: "a removal that is refused leaves a paused copy on the source after the release",
		hint:  "begin with one workload cluster that matters little"}
)

// checkRetirement asks the source, in dry-runs that store nothing, whether it would let a
// retirement remove the objects of the units, one of each kind in each unit. Admission would refuse
// that after the release, when there is no way back. Of the removal of shared objects nothing is
// asked: those that cannot be removed are left on the source.
func checkRetirement(ctx context.Context, c *checker) error {
	type of struct {
		unit string
		kind object.GroupKind
	}
	asked := map[of]bool{}
	var removals []*dryRemoval
	for _, n := range c.nodes {
		_, served := kube.FindKind(c.Source.Kinds, n.GroupKind())
		if n.Unit == "" || n.Deleting || !served || asked[of{n.Unit, n.GroupKind()}] {
			continue
		}
		asked[of{n.Unit, n.GroupKind()}] = true
		removals = append(removals, &dryRemoval{prober: c.Source.Prober, node: n})
	}
	g, gctx := task.WithContext(ctx)
	g.SetLimit(dryRuns)
	for _, r := range removals {
		g.Go(func() error { return r.try(gctx, c) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	reportRemovals(c, removals)
	return c.tryOwners(ctx)
}

// tryOwners asks about the shared objects that units own: a retirement takes these owners off them,
// before it removes the unit. Such objects are few.
func (c *checker) tryOwners(ctx context.Context) error {
	uids, units := map[types.UID]bool{}, map[object.Ref]string{}
	for _, n := range c.nodes {
		if n.Unit != "" {
			uids[types.UID(n.UID)], units[n.Ref] = true, n.Unit
		}
	}
	g := refusesOwners.group()
	for _, n := range c.nodes {
		k, served := kube.FindKind(c.Source.Kinds, n.GroupKind())
		i := slices.IndexFunc(n.Owners, func(o graph.Owner) bool { return units[o.Ref] != "" })
		if n.Unit != "" || !served || i < 0 {
			continue
		}
		live, err := captured{contents: c.contents}.Get(ctx, k, n.Namespace, n.Name)
		if err != nil {
			return err
		}
		if !restore.RemoveOwnerRefs(live, uids) {
			continue
		}
		r := &dryRemoval{prober: c.Source.Prober, node: n}
		words, err := r.answer(ctx, k, func(ctx context.Context) error {
			_, err := c.Source.Prober.DryRunUpdate(ctx, k, live)
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w", n.Ref, err)
		}
		if words != "" {
			g.note(&graph.Node{Ref: n.Ref, Unit: units[n.Owners[i].Ref]}, "("+words+")")
		}
	}
	g.report(c)
	return nil
}

// try asks about one object. Of a custom kind the patch is asked about as well when this object has
// no finalizers: others of its kind may have some.
func (r *dryRemoval) try(ctx context.Context, c *checker) error {
	k, _ := kube.FindKind(c.Source.Kinds, r.node.GroupKind())
	source := captured{contents: c.contents}
	was := metav1.ObjectMeta{UID: types.UID(r.node.UID), Finalizers: []string{"any"}}
	if k.Group == "" {
		live, err := source.Get(ctx, k, r.node.Namespace, r.node.Name)
		if err != nil {
			return err
		}
		was.ResourceVersion, was.Finalizers = live.GetResourceVersion(), live.GetFinalizers()
	}
	err := restore.Remove(ctx, source, r, k, r.node.Ref, was,
		func(*unstructured.Unstructured) error { return nil })
	if err != nil {
		return fmt.Errorf("%s: %w", r.node.Ref, err)
	}
	return nil
}

// captured reads objects as they were captured.
type captured struct {
	restore.Reader // which is nil: nothing is listed
	contents       restore.Contents
}

// Get implements restore.Reader.
func (c captured) Get(_ context.Context, k kube.Kind, namespace, name string) (
	*unstructured.Unstructured, error) {
	return decode(c.contents, object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace,
		Name: name})
}

// reportRemovals reports what the source would refuse.
func reportRemovals(c *checker, removals []*dryRemoval) {
	patch, del := refusesPatch.group(), refusesDelete.group()
	provider, unknown := providerRefuses.group(), notTried.group()
	for _, r := range removals {
		if r.patch != "" {
			patch.note(r.node, "("+r.patch+")")
		}
		switch {
		case r.del == "":
		case ofProvider.MatchString(r.del):
			provider.note(r.node, "("+r.del+")")
		default:
			del.note(r.node, "("+r.del+")")
		}
		if r.unknown {
			unknown.note(r.node, "has a webhook that supports no dry-run")
		}
	}
	for _, g := range []*group{patch, del, provider, unknown} {
		g.report(c)
	}
}

// ofProvider matches the refusal of a webhook of Cluster API or of one of its providers: its name
// is in their domain (kubebuilder gives it the group of the kind).
var ofProvider = regexp.MustCompile(`admission webhook "[a-z0-9.-]+\.x-k8s\.io" denied`)
