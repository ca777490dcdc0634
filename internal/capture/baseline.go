package capture

import (
	"reflect"
	"slices"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Baseline is what an earlier capture knows of a source. A capture changes its nodes: they belong
// to the capture once Run is called.
type Baseline struct {
	ResourceVersion string
	Kinds           []kube.Kind        // that the source served
	NotInCut        []object.GroupKind // kinds that were not read, or not as of ResourceVersion
	// Nodes are all objects that were read, captured or not.
	Nodes map[object.GroupKind][]*graph.Node
	// Cut is the whole cut, if the process still has it.
	Cut *Cut
	// HistoryVerified says that etcd was not restored since, so that a watch from ResourceVersion
	// returns every change. (A watch does not report objects that a restored etcd brought back.)
	HistoryVerified bool

	// incomplete says that objects of related kinds may have been dropped that are of interest now.
	incomplete bool
}

func (b *Baseline) objects() (n int) {
	for _, nodes := range b.Nodes {
		n += len(nodes)
	}
	return n
}

// unchangedKind reports whether the nodes of k can be used: the source serves k as before, and k
// was read as of the baseline's resourceVersion.
func (b *Baseline) unchangedKind(k kube.Kind) bool {
	was, ok := kube.FindKind(b.Kinds, k.GroupKind)
	return ok && reflect.DeepEqual(was, k) && !slices.Contains(b.NotInCut, k.GroupKind)
}

func (b *Baseline) unchangedKinds(kinds []kube.Kind) bool {
	return !slices.ContainsFunc(kinds, func(k kube.Kind) bool { return !b.unchangedKind(k) })
}

func sameKinds(a, b []kube.Kind) bool {
	return slices.EqualFunc(a, b, func(a, b kube.Kind) bool { return a.GroupKind == b.GroupKind })
}

// cutOf returns the cut of the baseline if the process has it and the source serves the same kinds,
// else nil.
func (b *Baseline) cutOf(kinds []kube.Kind) *Cut {
	if b.Cut == nil || !reflect.DeepEqual(b.Kinds, kinds) {
		return nil
	}
	return b.Cut
}

// NotOlder reports whether resourceVersion a is b or after it.
func NotOlder(a, b string) bool { return a == b || isLater(a, b) }

func isLater(version, than string) bool {
	a, err := kube.ParseVersion(version)
	b, err2 := kube.ParseVersion(than)
	return err == nil && err2 == nil && a > b
}
