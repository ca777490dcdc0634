package capture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// selection decides which objects are in a cut. Kinds of Cluster API come first: what they own and
// name decides which Secrets and ConfigMaps are captured, and the namespaces of all those decide
// which Namespaces are.
type selection struct {
	all     []kube.Kind // that the source serves
	kinds   []kube.Kind // those that are captured whole
	related []kube.Kind // those of which related objects are captured
	// relation is nil when nothing is captured by relation; owned are the captured objects that
	// objects of related kinds own, by the UID of the owner.
	relation *relation
	owned    map[string]*graph.Node
	scope    Scope
	// listed are the namespaces that are listed; none when all are (Options.ListScope).
	listed []string
	// left are the UIDs of owners that exist and are not listed.
	left   map[object.Ref]string
	rows   *capi.Table
	source objects
	// fn is called with each captured object: as it is read, or with a selector, which needs the
	// whole graph, at the end.
	fn func(*graph.Node, []byte) error

	mu    sync.Mutex
	nodes []*graph.Node
	index map[object.Ref]*graph.Node
	// outside are the objects that were read and are not captured so far. What is outside of the
	// scope is captured once a captured object needs it.
	outside map[object.Ref]*graph.Node
	wanted  map[object.Ref]string      // named by a captured object, and by which field
	omitted map[object.Ref]*graph.Node // wanted, with too many references
	// held are the bytes of objects until the selector has decided about them, and heldSize how many
	// there are.
	held     map[object.Ref][]byte
	heldSize int
}

func (r *run) newSelection(from objects, fn func(*graph.Node, []byte) error) *selection {
	var listed []string
	if r.ListScope {
		listed = r.Scope.Namespaces
	}
	return &selection{all: r.Kinds, listed: listed, left: r.Narrow.Owners, kinds: r.kinds,
		related:  r.related,
		relation: r.reader.relation,
		scope:    r.Scope, rows: r.Rows, source: from, fn: fn,
		index: map[object.Ref]*graph.Node{}, outside: map[object.Ref]*graph.Node{},
		wanted: map[object.Ref]string{}, omitted: map[object.Ref]*graph.Node{},
		held: map[object.Ref][]byte{}}
}

// customKinds divides the custom kinds. Selected kinds are captured whole: they belong to Cluster
// API by label, or rows knows them. Of related kinds nothing is known; a capture holds those of
// their objects that own a captured object, are owned by one, or have the label of a captured
// Cluster.
func customKinds(kinds []kube.Kind, rows *capi.Table) (selected, related []kube.Kind) {
	for _, k := range kinds {
		switch {
		case isSelectedKind(k, rows):
			selected = append(selected, k)
		case isRelatedKind(k, rows):
			related = append(related, k)
		}
	}
	return selected, related
}

func isSelectedKind(k kube.Kind, rows *capi.Table) bool {
	return k.Group != "" && (k.Contract || rows.Known(k.GroupKind))
}

// holdsCaptured is why a Namespace is captured.
const holdsCaptured = "holds captured objects"

// run reads the source and returns the cut, without its resourceVersion.
func (s *selection) run(ctx context.Context) (*Cut, error) {
	if err := s.listAll(ctx, s.kinds, func(n *graph.Node) (string, bool) {
		return "kind of Cluster API", s.scope.has(n.Namespace)
	}); err != nil {
		return nil, err
	}
	if err := s.addNeeded(ctx); err != nil {
		return nil, err
	}
	core := []kube.Kind{kube.SecretKind, kube.ConfigMapKind}
	if err := s.listAll(ctx, core, s.wantCore); err != nil {
		return nil, err
	}
	if err := s.readNamed(ctx, core); err != nil {
		return nil, err
	}
	if err := s.addOwned(ctx); err != nil {
		return nil, err
	}
	if err := s.captureNamespaces(ctx); err != nil {
		return nil, err
	}
	if err := s.addRelated(ctx); err != nil {
		return nil, err
	}
	s.leaveOutOwners()
	cut := &Cut{Kinds: s.all, NotCaptured: slices.Collect(maps.Values(s.outside))}
	omitted := slices.Collect(maps.Values(s.omitted))
	for _, n := range cut.NotCaptured {
		if isCore(n) && s.scope.has(n.Namespace) {
			cut.LeftOut = append(cut.LeftOut, n.Ref)
		}
	}
	slices.SortFunc(cut.LeftOut, object.CompareRefs)
	if s.scope.Selector.Everything() {
		cut.Graph = graph.New(s.nodes, s.rows)
		cut.Omitted = cut.Graph.Omit(omitted)
	} else if err := s.narrow(cut, omitted); err != nil {
		return nil, err
	}
	cut.NotCaptured = append(cut.NotCaptured, omitted...)
	return cut, nil
}

// captureNamespaces captures the namespaces that hold captured objects.
func (s *selection) captureNamespaces(ctx context.Context) error {
	used := map[string]bool{}
	for _, n := range s.nodes {
		if n.Namespace != "" {
			used[n.Namespace] = true
		}
	}
	want := func(n *graph.Node) (string, bool) { return holdsCaptured, used[n.Name] }
	if len(s.listed) == 0 {
		return s.listAll(ctx, []kube.Kind{kube.NamespaceKind}, want)
	}
	for name := range used {
		if err := s.list(ctx, kube.NamespaceKind, "", name, want); err != nil {
			return err
		}
	}
	return nil
}

// readNamed reads, where only some namespaces are listed, what captured objects name in others.
func (s *selection) readNamed(ctx context.Context, kinds []kube.Kind) error {
	if len(s.listed) == 0 {
		return nil
	}
	for _, k := range kinds {
		for ref, why := range maps.Clone(s.wanted) {
			if ref.GroupKind() != k.GroupKind || !k.Namespaced || s.scope.has(ref.Namespace) ||
				s.index[ref] != nil {
				continue
			}
			name, want := ref.Name, func(*graph.Node) (string, bool) { return why, true }
			if capi.IsHelmStorage(ref) { // it stands for all Secrets of a release
				name, want = "", func(n *graph.Node) (string, bool) {
					storage, _ := capi.HelmStorageOf(n.Ref)
					return why, storage == ref
				}
			}
			if err := s.list(ctx, k, ref.Namespace, name, want); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveOutOwners notes, where only some namespaces are listed, the owners that may be in others,
// and those that were left out.
func (s *selection) leaveOutOwners() {
	if len(s.listed) == 0 {
		return
	}
	for _, n := range s.nodes {
		for i, o := range n.Owners {
			if s.index[o.Ref] == nil && o.Namespace != "" &&
				(!s.scope.has(o.Namespace) || s.left[o.Ref] != "" && s.left[o.Ref] == o.UID) {
				n.Owners[i].LeftOut = true
			}
		}
	}
}

// narrow makes the graph of a cut with a selector: of the workload clusters that it selects, and
// what they need.
func (s *selection) narrow(cut *Cut, omitted []*graph.Node) error {
	whole := graph.NewWhole(s.nodes, s.rows)
	units := whole.UnitsWith(s.scope.Selector)
	maps.DeleteFunc(units, func(unit string, _ bool) bool {
		namespace, _, _ := strings.Cut(unit, "/")
		return !s.scope.has(namespace) // captured since another workload cluster names it
	})
	cut.Graph, cut.NotSelected = whole.Narrow(units)
	cut.NotCaptured = append(cut.NotCaptured, cut.NotSelected...)
	for _, o := range whole.Omit(omitted) {
		if units[o.Unit] {
			cut.Omitted = append(cut.Omitted, o)
		}
	}
	for _, n := range cut.Graph.Nodes {
		if err := s.fn(n, s.held[n.Ref]); err != nil {
			return err
		}
	}
	return nil
}

// give passes a captured object on, or holds it for narrow. What there is no room for comes without
// bytes, as an object does that is as in the baseline.
func (s *selection) give(n *graph.Node, raw []byte) error {
	if s.scope.Selector.Everything() {
		return s.fn(n, raw)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heldSize += len(raw); raw != nil && s.heldSize <= heldBytes {
		s.held[n.Ref] = slices.Clone(raw)
	}
	return nil
}

func (s *selection) listAll(ctx context.Context, kinds []kube.Kind,
	want func(*graph.Node) (why string, ok bool)) error {
	g, ctx := task.WithContext(ctx)
	g.SetLimit(captureLists)
	if len(s.listed) > 0 {
		g.SetLimit(scopeLists)
	}
	for _, k := range kinds {
		if len(s.listed) == 0 || !k.Namespaced {
			g.Go(func() error { return s.list(ctx, k, "", "", want) })
			continue
		}
		for _, namespace := range s.listed {
			g.Go(func() error { return s.list(ctx, k, namespace, "", want) })
		}
	}
	return g.Wait()
}

// list reads one kind, or one object of it, and captures what is wanted.
func (s *selection) list(ctx context.Context, k kube.Kind, namespace, name string,
	want func(*graph.Node) (why string, ok bool)) error {
	return s.source.each(ctx, k, namespace, name, func(n *graph.Node, raw []byte) error {
		why, ok := want(n)
		if !ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.outside[n.Ref] = n
			return nil
		}
		if len(n.Owners) > MaxReferences || len(n.Needs) > MaxReferences {
			s.omit(n)
			return nil
		}
		n.Why = why
		s.add(n)
		return s.give(n, raw)
	})
}

// omit leaves out an object that is wanted. Of its references it retains as many as show the next
// capture that they are too many.
func (s *selection) omit(n *graph.Node) {
	n.Owners = slices.Clone(n.Owners[:min(len(n.Owners), MaxReferences+1)])
	n.Needs = slices.Clone(n.Needs[:min(len(n.Needs), MaxReferences+1)])
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.outside, n.Ref)
	s.omitted[n.Ref] = n
}

// add captures an object.
func (s *selection) add(n *graph.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.outside, n.Ref)
	s.nodes = append(s.nodes, n)
	s.index[n.Ref] = n
	if !n.Related {
		s.relation.want(n)
	}
	for _, need := range n.Needs {
		if s.wanted[need.Ref] == "" && !need.Back {
			s.wanted[need.Ref] = fmt.Sprintf("named by %s in %s", n.Ref, need.Field)
		}
	}
}

func isCore(n *graph.Node) bool {
	return n.GroupKind() == capi.Secret || n.GroupKind() == capi.ConfigMap
}

// addOwned captures Secrets and ConfigMaps that a captured one owns, in whatever order they were
// listed.
func (s *selection) addOwned(ctx context.Context) error {
	for {
		var more []*graph.Node
		for _, n := range s.outside {
			if isCore(n) && len(n.Owners) > 0 {
				if _, ok := s.wantCore(n); ok {
					more = append(more, n)
				}
			}
		}
		if len(more) == 0 {
			return nil
		}
		slices.SortFunc(more, func(a, b *graph.Node) int { return object.CompareRefs(a.Ref, b.Ref) })
		for _, n := range more {
			k, _ := kube.FindKind(s.all, n.GroupKind())
			if err := s.list(ctx, k, n.Namespace, n.Name, s.wantCore); err != nil {
				return err
			}
			// also one that is gone by now, of a kind that is read at its newest state
			delete(s.outside, n.Ref)
		}
	}
}

// addNeeded captures what captured objects need from namespaces outside of the scope, and what that
// needs in turn, for example a ClusterClass and its templates.
func (s *selection) addNeeded(ctx context.Context) error {
	done := map[object.Ref]bool{}
	for captured := -1; captured != len(s.nodes) && len(s.listed) > 0; {
		captured = len(s.nodes)
		if err := s.readNamed(ctx, s.kinds); err != nil {
			return err
		}
	}
	for {
		var more []*graph.Node
		for ref := range s.wanted {
			if n := s.outside[ref]; n != nil && !done[ref] {
				done[ref] = true
				more = append(more, n)
			}
		}
		if len(more) == 0 {
			return nil
		}
		slices.SortFunc(more, func(a, b *graph.Node) int { return object.CompareRefs(a.Ref, b.Ref) })
		for _, n := range more {
			k, _ := kube.FindKind(s.all, n.GroupKind())
			why := s.wanted[n.Ref]
			want := func(*graph.Node) (string, bool) { return why, true }
			if err := s.list(ctx, k, n.Namespace, n.Name, want); err != nil {
				return err
			}
		}
	}
}

// wantCore decides about Secrets and ConfigMaps: captured are those that a captured object owns or
// names, those labelled for a captured Cluster or for clusterctl move, and certificates by their
// name.
func (s *selection) wantCore(n *graph.Node) (why string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLock(n) {
		return "", false
	}
	for _, o := range n.Owners {
		if owner := s.index[o.Ref]; owner != nil {
			return "owned by " + o.Ref.String(), true
		}
	}
	if why := s.wanted[n.Ref]; why != "" {
		return why, true
	}
	if storage, ok := capi.HelmStorageOf(n.Ref); ok && s.wanted[storage] != "" {
		return s.wanted[storage], true
	}
	if !s.scope.has(n.Namespace) {
		return "", false
	}
	if n.Cluster != "" && s.index[object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: n.Namespace, Name: n.Cluster}] != nil {
		return "labelled or named for Cluster " + n.Namespace + "/" + n.Cluster, true
	}
	if n.Movable {
		return "labelled for clusterctl move", true
	}
	return "", false
}

// isLock reports whether a ConfigMap is the lock of a provider, owned by its Cluster.
func (s *selection) isLock(n *graph.Node) bool {
	cluster, ok := s.rows.ClusterOfLock(n.Ref)
	return ok && slices.ContainsFunc(n.Owners, func(o graph.Owner) bool { return o.Ref == cluster })
}
