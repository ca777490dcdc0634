package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// manyDropped is how many unrelated objects of one kind a capture of a small source lists, with a
// verified baseline. That takes about 40 ms for each thousand. Where there are more, the capture
// watches what changed, which takes one to two seconds for any number.
const manyDropped = 10_000

// Unread is a kind whose related objects a capture could not look for, and why.
type Unread struct {
	object.GroupKind
	Reason string
}

func isRelatedKind(k kube.Kind, rows *capi.Table) bool {
	return k.Group != "" && !isSelectedKind(k, rows)
}

// relation decides which objects of related kinds are worth a node. All others are dropped as they
// are listed, so that neither memory nor the baseline grows with them.
type relation struct {
	kinds  map[object.GroupKind]bool // the related kinds
	owners map[object.GroupKind]bool // kinds of which objects may be captured otherwise

	mu     sync.Mutex
	wanted map[object.Ref]bool // objects of related kinds that own a captured object
	unread map[object.GroupKind]string
}

func newRelation(selected, related []kube.Kind) *relation {
	r := &relation{kinds: map[object.GroupKind]bool{}, owners: map[object.GroupKind]bool{
		capi.Secret: true, capi.ConfigMap: true, capi.Namespace: true},
		wanted: map[object.Ref]bool{}, unread: map[object.GroupKind]string{}}
	for _, k := range selected {
		r.owners[k.GroupKind] = true
	}
	for _, k := range related {
		r.kinds[k.GroupKind] = true
	}
	return r
}

// is reports whether gk is a related kind. A nil relation has none.
func (r *relation) is(gk object.GroupKind) bool { return r != nil && r.kinds[gk] }

// want adds the owners of a captured object.
func (r *relation) want(n *graph.Node) {
	if r == nil {
		return
	}
	for _, o := range n.Owners {
		if r.kinds[o.GroupKind()] {
			r.mu.Lock()
			r.wanted[o.Ref] = true
			r.mu.Unlock()
		}
	}
}

func (r *relation) isWanted(ref object.Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted[ref]
}

// wantedOwners returns the owners that were added, by ref.
func (r *relation) wantedOwners() []object.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	refs := make([]object.Ref, 0, len(r.wanted))
	for ref := range r.wanted {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, object.CompareRefs)
	return refs
}

// drops reports whether an object with this metadata is of a related kind and cannot be related:
// nothing of a captured kind owns it, it has no label of a Cluster, and it is not a wanted owner.
func (r *relation) drops(k kube.Kind, key object.Key, meta gjson.Result) bool {
	if !r.is(k.GroupKind) {
		return false
	}
	if key.Namespace != "" && valueOf(meta.Get("labels"), capi.LabelClusterName) != "" {
		return false
	}
	owned := false
	meta.Get("ownerReferences").ForEach(func(_, o gjson.Result) bool {
		group, _, ok := strings.Cut(o.Get("apiVersion").String(), "/")
		if !ok {
			group = ""
		}
		owned = r.owners[object.GroupKind{Group: group, Kind: o.Get("kind").String()}]
		return !owned
	})
	return !owned && !r.isWanted(object.Ref{Group: k.Group, Kind: k.Kind, Namespace: key.Namespace,
		Name: key.Name})
}

// valueOf returns the string under a key that may have any characters.
func valueOf(o gjson.Result, key string) string {
	var value [1]gjson.Result
	pick(o, []string{key}, value[:])
	return text(value[0])
}

// skips reports whether an error is that of a related kind alone, which is then not read: its list
// is forbidden, the server cannot give it, for example since a conversion webhook is down, it is
// gone, or it has no end (kube.ErrUnbounded). Objects of which nothing is known must not prevent a
// snapshot.
func (r *relation) skips(k kube.Kind, err error) bool {
	if err == nil || !r.is(k.GroupKind) || errors.Is(err, kube.ErrExpired) ||
		errors.Is(err, ErrHistory) || errors.Is(err, kube.ErrExactRefused) {
		return false
	}
	var answer apierrors.APIStatus
	endless := errors.Is(err, kube.ErrUnbounded)
	if !errors.As(err, &answer) && !endless {
		return false
	}
	reason := "the API server does not list it"
	switch {
	case endless:
		reason = "it has too many objects, or one that is too big"
	case apierrors.IsForbidden(err):
		reason = "the credentials may not list it"
	case apierrors.IsNotFound(err): // its CRD was just created or deleted
		reason = "the API server does not serve it"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread[k.GroupKind] = reason
	return true
}

// notRead returns the kinds that were not read, sorted.
func (r *relation) notRead() []Unread {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Unread
	for gk, reason := range r.unread {
		list = append(list, Unread{gk, reason})
	}
	slices.SortFunc(list, func(a, b Unread) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// errManyRelated reports that the objects of a kind are too many to read them one by one.
var errManyRelated = errors.New("many related objects")

// listRelated reads the objects of a related kind that are not dropped: it lists metadata, and
// reads these objects one by one, or all, where they are many.
func (r reader) listRelated(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(*graph.Node, []byte) error) (kube.ListResult, error) {
	var keys []object.Key
	o.Metadata = true
	list, err := r.source.List(ctx, k, o, func(raw []byte) error {
		key, meta := keyOf(raw)
		if r.relation.drops(k, key, meta) {
			return nil
		}
		if keys = append(keys, key); len(keys) > manyFetched {
			return errManyRelated
		}
		return nil
	})
	if err == nil {
		return list, r.fetch(ctx, k, keys, o.Exact, fn)
	}
	if !errors.Is(err, errManyRelated) {
		return list, err
	}
	o.Metadata = false
	return r.source.List(ctx, k, o, func(raw []byte) error {
		key, meta := keyOf(raw)
		if r.relation.drops(k, key, meta) {
			return nil
		}
		return fn(r.nodes.Node(k, raw), raw)
	})
}

// addRelated captures the objects of related kinds, one hop from what is captured so far, and the
// Namespaces that they are in.
func (s *selection) addRelated(ctx context.Context) error {
	if s.relation == nil {
		return nil
	}
	s.owned = map[string]*graph.Node{}
	for _, n := range s.nodes {
		for _, o := range n.Owners {
			if s.relation.is(o.GroupKind()) && s.owned[o.UID] == nil {
				s.owned[o.UID] = n
			}
		}
	}
	if err := s.listAll(ctx, s.related, s.wantRelated); err != nil {
		return err
	}
	for _, ref := range s.relation.wantedOwners() {
		if s.index[ref] != nil || s.outside[ref] != nil {
			continue
		}
		k, ok := kube.FindKind(s.all, ref.GroupKind())
		if !ok || s.relation.unread[ref.GroupKind()] != "" {
			continue
		}
		if err := s.list(ctx, k, ref.Namespace, ref.Name, s.wantRelated); err != nil {
			return err
		}
	}
	return s.addNamespaces(ctx)
}

// wantRelated decides about objects of related kinds. Owners are compared by UID: an object that
// names another UID is about to be deleted.
func (s *selection) wantRelated(n *graph.Node) (why string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by := s.owned[n.UID]; by != nil {
		return "owns " + by.Ref.String(), true
	}
	if !s.scope.has(n.Namespace) {
		return "", false
	}
	for _, o := range n.Owners {
		if owner := s.index[o.Ref]; owner != nil && owner.UID == o.UID && !owner.Related {
			return "owned by " + o.Ref.String(), true
		}
	}
	if n.Cluster != "" && s.index[object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: n.Namespace, Name: n.Cluster}] != nil {
		return "labelled for Cluster " + n.Namespace + "/" + n.Cluster, true
	}
	return "", false
}

// addNamespaces captures the Namespaces of captured objects that were not captured before.
func (s *selection) addNamespaces(ctx context.Context) error {
	missing := map[string]bool{}
	for _, n := range s.nodes {
		ref := object.Ref{Kind: capi.Namespace.Kind, Name: n.Namespace}
		if n.Namespace != "" && s.index[ref] == nil && s.outside[ref] != nil {
			missing[n.Namespace] = true
		}
	}
	for name := range missing {
		if err := s.list(ctx, kube.NamespaceKind, "", name, func(*graph.Node) (string, bool) {
			return holdsCaptured, true
		}); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}
