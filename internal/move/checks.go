package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// checker runs the pre-flight checks of the source. Those of the target are a restore's.
type checker struct {
	Ends
	spec     Spec
	nodes    []*graph.Node
	contents restore.Contents
	graph    *graph.Graph
	findings []object.Finding
	locks    map[string]string
	ids      map[string]string // units by id of the workload cluster
	suspend  []Suspension      // the owners that the move suspends, roots first
}

func (c *checker) add(f object.Finding) { c.findings = append(c.findings, f) }

// checks are the rows of the source of a move.
var checks = []preflight.Check[*checker]{
	{Name: "fence", Run: checkFence},
	{Name: "pools", Run: checkPools},
	{Name: "units", Run: checkUnits},
	{Name: "store", Run: checkStore},
	{Name: "provisioning", Run: checkProvisioning},
	{Name: "progress", Run: checkProgress},
	{Name: "own", Run: checkOwn},
	{Name: "adoption", Run: checkAdoption},
	{Name: "gitops", Run: checkGitOps},
	{Name: "autoscalers", Run: checkAutoscalers},
	{Name: "rights", Run: checkRights},
	{Name: "feature-gates", Run: checkFeatureGates},
	{Name: "cascade", Run: checkCascade},
	{Name: "retirement", Run: checkRetirement},
	{Name: "policy", Run: checkPolicy},
}

func (c *checker) run(ctx context.Context) ([]object.Finding, error) {
	c.locks, c.ids = map[string]string{}, map[string]string{}
	err := preflight.Run(ctx, checks, c)
	return c.findings, err
}

// checkFence reports a store that cannot hold ownership records. Without a record that the other
// side finds, two operators on two hosts can both hand over.
func checkFence(ctx context.Context, c *checker) error {
	err := c.Store.CanFence(ctx)
	switch {
	case c.spec.NoFence:
		c.add(object.Finding{Severity: object.Warning, Code: object.CodeNoFence,
			Message: "no ownership record is written: a source that is brought back from an older state " +
				"does not find out that it lost its workload clusters",
			Hint: "write ownership records where the store can hold them"})
		findings, err := mirror.Findings(ctx, c.Store)
		for _, f := range findings {
			c.add(f)
		}
		return err
	case err != nil:
		c.add(object.Finding{Severity: object.Fatal, Code: object.CodeNoFence,
			Message: "ownership records cannot " +
				"be written: " + err.Error(), Hint: "use a store that honours conditional writes, and a " +
				"signing key"})
	}
	return nil
}

// checkUnits reports Clusters that must not, or should not, be moved.
func checkUnits(_ context.Context, c *checker) error {
	return c.each(isCluster, func(n *graph.Node, o gjson.Result) {
		c.checkCluster(n, o.Get("metadata.annotations").Map())
	})
}

// checkCluster reports what the annotations of a Cluster say of other operations.
func (c *checker) checkCluster(n *graph.Node, annotations map[string]gjson.Result) {
	if other := c.ids[n.WorkloadID]; other != "" {
		c.add(object.Finding{Severity: object.Error, Code: object.CodeIDNotUnique, Ref: n.Ref,
			Unit:    n.Unit,
			Message: "it has the same " + capi.AnnotationWorkloadID + " as " + other,
			Hint:    "the annotation was copied with a manifest: remove it from the one that is the copy"})
	}
	c.ids[n.WorkloadID] = n.Unit
	if capi.IsUnfinishedCopy(annotations) {
		c.add(object.Finding{Severity: object.Error, Code: object.CodeHeld, Ref: n.Ref, Unit: n.Unit,
			Message: "it is the paused copy of a restore or a move that is not at its end",
			Hint:    "finish that operation first"})
	}
	if lock := annotations[capi.AnnotationOperation].String(); lock != "" {
		c.locks[n.Unit] = lock
		operation, _, _ := strings.Cut(lock, "/")
		c.add(object.Finding{Severity: object.Error, Code: object.CodeLocked,
			Ref: n.Ref, Unit: n.Unit,
			Message: "operation " + operation + " is at work on it",
			Hint:    "resume operation " + operation + " or roll it back"})
	}
}

// checkStore reports Clusters whose ownership record is in another store: this move would not
// change it. The name of a store may be mistyped, and a store is made where there is none.
func checkStore(_ context.Context, c *checker) error {
	if c.Store.Made() {
		c.add(object.Finding{Severity: object.Info, Code: object.CodeNewStore,
			Message: fmt.Sprintf("there was no store in %s, so the move has made one", c.Store),
			Hint:    "check its URL: snapshots and ownership records of earlier days are not in it"})
	}
	return c.each(isCluster, func(n *graph.Node, o gjson.Result) {
		mark := annotationOf(o, capi.AnnotationEpoch).String()
		other, epoch := ownership.MarkedElsewhere(c.Store.OriginID(), mark)
		if other == "" {
			return
		}
		c.add(object.Finding{Severity: object.Warning, Code: object.CodeOtherStore, Ref: n.Ref,
			Unit: n.Unit, Message: fmt.Sprintf("its ownership record, epoch %d, is in the store %s, and "+
				"this move writes one into the store %s, %s: with the other one, mgmtd goes on to take %s "+
				"for its owner", epoch, other, c.Store.ID(), c.Store, c.Source.Name),
			Hint: "check the URL of the store; move it with the other one, unless that is given up"})
	})
}

// checkRights asks the source whether our credentials allow to pause and to retire, and the target
// whether they allow to look for what the garbage collector would take along with a copy that is
// removed again: a workload cluster is not given back before that is known.
func checkRights(ctx context.Context, c *checker) error {
	var kinds []kube.Kind
	seen := map[object.GroupKind]bool{kube.NamespaceKind.GroupKind: true} // namespaces stay
	for _, n := range c.nodes {
		if k, ok := kube.FindKind(c.Source.Kinds, n.GroupKind()); ok && !seen[n.GroupKind()] {
			kinds = append(kinds, k)
		}
		seen[n.GroupKind()] = true
	}
	missing, err := preflight.Rights(ctx, c.Source.Prober, kinds,
		func(kube.Kind) []preflight.Right {
			return []preflight.Right{{Verb: "get"}, {Verb: "list"}, {Verb: "update"}, {Verb: "patch"},
				{Verb: "delete"}}
		})
	for _, m := range missing {
		c.add(m.Finding("source"))
	}
	if err != nil {
		return err
	}
	return c.checkListing(ctx)
}

// everything is all kinds of a management cluster in a review of access: who may list it may list
// each of them.
var everything = kube.Kind{GroupKind: object.GroupKind{Group: "*"}, Version: "*", Resource: "*"}

// checkListing is checkRights for the target.
func (c *checker) checkListing(ctx context.Context) error {
	list := preflight.Right{Verb: "list"}
	if may, err := c.Target.Prober.Allowed(ctx, list.Verb, everything, ""); err != nil || may {
		return err
	}
	kinds, _, err := c.Target.Reader.Resources(ctx)
	if err != nil {
		return err
	}
	inNone := slices.ContainsFunc(c.nodes, func(n *graph.Node) bool {
		return n.Namespace == "" && n.GroupKind() != kube.NamespaceKind.GroupKind
	})
	missing, err := preflight.Rights(ctx, c.Target.Prober, kinds,
		func(k kube.Kind) []preflight.Right {
			if !k.Namespaced && !inNone { // what is in a namespace owns none of that kind
				return nil
			}
			return []preflight.Right{list}
		})
	for _, m := range missing {
		f := m.Finding("target")
		f.Message += ": a copy could not be removed again, since whether the garbage collector would " +
			"take objects of that kind along is not known"
		c.add(f)
	}
	return err
}

// checkCascade reports objects of the source that the garbage collector would delete once their
// owners are retired.
func checkCascade(ctx context.Context, c *checker) error {
	toDelete, moves := map[string]object.Ref{}, map[*graph.Node]bool{}
	for _, n := range c.nodes {
		if n.GroupKind() != kube.NamespaceKind.GroupKind {
			toDelete[n.UID] = n.Ref
		}
		moves[n] = true
	}
	in := func(r object.Ref) bool { return moves[c.graph.Node(r)] }
	findings, err := restore.Dependants(ctx, c.Source.Reader, toDelete,
		func(r, _ object.Ref) bool { return in(r) || isLock(c.Rows, r, in) },
		func(r object.Ref) string { return c.graph.Node(r).Unit })
	for _, f := range findings {
		if f.Unit == "" && f.Code == object.CodeGCWouldCascade {
			f.Severity = object.Warning // what is shared and owns something is not retired
			f.Message += "; so its owner stays on the source"
		}
		c.add(f)
	}
	return err
}

// isLock reports whether r is the lock of a provider of a Cluster that moves. It is never captured
// and is deleted with its Cluster.
func isLock(rows *capi.Table, r object.Ref, moves func(object.Ref) bool) bool {
	cluster, ok := rows.ClusterOfLock(r)
	return ok && moves(cluster)
}
