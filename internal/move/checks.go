package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// checker runs the pre-flight checks of the source. Those of the target are a restore's.
type checker struct {
	Ends
	spec     Spec
	nodes    []*graph.Node
	contents *snapshot.Contents
	graph    *graph.Graph
	findings []object.Finding
	locks    map[string]string
	ids      map[string]string // units by id of the workload cluster
}

func (c *checker) add(f object.Finding) { c.findings = append(c.findings, f) }

func (c *checker) run(ctx context.Context) ([]object.Finding, error) {
	c.locks, c.ids = map[string]string{}, map[string]string{}
	c.checkFence(ctx)
	c.checkPools()
	for _, n := range c.nodes {
		if err := c.checkNode(n); err != nil {
			return nil, err
		}
	}
	if err := c.checkRights(ctx); err != nil {
		return nil, err
	}
	return c.findings, c.checkCascade(ctx)
}

// checkFence: without a record that the other side finds, two operators on two hosts can both hand
// over.
func (c *checker) checkFence(ctx context.Context) {
	err := c.Ownership.CanFence(ctx)
	switch {
	case c.spec.NoFence:
		c.add(object.Finding{Severity: object.Warning, Code: object.CodeNoFence,
			Message: "no ownership record is written: a source that is brought back from an older state " +
				"does not find out that it lost its workload clusters",
			Hint: "leave --no-fence out where the store can fence"})
	case err != nil:
		c.add(object.Finding{Severity: object.Fatal, Code: object.CodeNoFence,
			Message: "ownership records cannot " +
				"be written: " + err.Error(), Hint: "use a store that honours conditional writes, and a " +
				"signing key; or go without, with --no-fence"})
	}
}

// checkNode looks for states in which a unit had better not be moved.
func (c *checker) checkNode(n *graph.Node) error {
	if n.Unit == "" {
		return nil
	}
	raw, err := c.contents.Bytes(n.Ref)
	if err != nil {
		return err
	}
	annotations := gjson.GetBytes(raw, "metadata.annotations").Map()
	switch n.GroupKind() {
	case capi.Cluster:
		lock := annotations[capi.AnnotationOperation].String()
		if other := c.ids[n.WorkloadID]; other != "" {
			c.add(object.Finding{Severity: object.Error, Code: object.CodeIDNotUnique, Ref: n.Ref,
				Unit:    n.Unit,
				Message: "it has the same " + capi.AnnotationWorkloadID + " as " + other,
				Hint:    "the annotation was copied with a manifest: take it off the one that is the copy"})
		}
		c.ids[n.WorkloadID] = n.Unit
		if annotations[capi.AnnotationWasPaused].Exists() && !strings.Contains(lock, "/") {
			c.add(object.Finding{Severity: object.Error, Code: object.CodeHeld, Ref: n.Ref, Unit: n.Unit,
				Message: "it is the paused copy of a restore or a move that is not at its end",
				Hint:    "bring that operation to its end first (mgmtctl operation list)"})
		}
		if lock != "" {
			c.locks[n.Unit] = lock
			operation, _, _ := strings.Cut(lock, "/")
			c.add(object.Finding{Severity: c.unlessForced(object.CodeLocked), Code: object.CodeLocked,
				Ref: n.Ref, Unit: n.Unit,
				Message: "operation " + operation + " is at work on it",
				Hint: "mgmtctl operation resume " + operation + ", or rollback; with --force when that " +
					"operation and its catalog are lost"})
		}
		if capi.GitOpsOwned(gjson.GetBytes(raw, "metadata.labels").Map(), annotations) {
			c.gitops(n)
		}
	case capi.Machine:
		if gjson.GetBytes(raw, "status.nodeRef.name").String() == "" {
			c.add(object.Finding{Severity: c.unlessForced(object.CodeProvisioning),
				Code: object.CodeProvisioning, Ref: n.Ref, Unit: n.Unit,
				Message: "it has no Node yet: it is being provisioned",
				Hint:    "let it come up, or delete it; or take the risk with --force"})
		}
	}
	return nil
}

func (c *checker) gitops(n *graph.Node) {
	c.add(object.Finding{Severity: object.Warning, Code: object.CodeGitOpsOwner, Ref: n.Ref,
		Unit: n.Unit,
		Message: "a GitOps controller applies it: on the source it would end the pause, and make it " +
			"anew once it is gone",
		Hint: "suspend what applies it, up to its root, before the move, and point it at the " +
			"target afterwards"})
}

// unlessForced returns the severity of a finding that the operator can override.
func (c *checker) unlessForced(code object.Code) object.Severity {
	if c.spec.Force.Has(code) {
		return object.Warning
	}
	return object.Error
}

// checkPools: a pool of addresses that serves workload clusters on both sides would hand out the
// same address twice.
func (c *checker) checkPools() {
	in := map[string]bool{}
	for _, n := range c.nodes {
		in[n.Unit] = true
	}
	for _, n := range c.nodes {
		if n.Unit != "" || !c.Rows.Row(n.GroupKind()).AddressPool {
			continue
		}
		for _, user := range c.graph.Nodes {
			uses := func(need graph.Need) bool { return need.Ref == n.Ref }
			if user.Unit != "" && !in[user.Unit] && slices.ContainsFunc(user.Needs, uses) {
				c.add(object.Finding{Severity: c.unlessForced(object.CodePoolShared),
					Code: object.CodePoolShared, Ref: n.Ref,
					Message: "workload cluster " + user.Unit + ", which stays, has addresses of it, too",
					Hint: "move all users of the pool together, or give them pools of their own; with --force " +
						"when its ranges are known not to collide"})
				break
			}
		}
	}
}

// checkRights asks the source whether our credentials may pause and retire.
func (c *checker) checkRights(ctx context.Context) error {
	kinds := map[object.GroupKind]bool{}
	for _, n := range c.nodes {
		kinds[n.GroupKind()] = n.GroupKind() != kube.NamespaceKind.GroupKind
	}
	results := make(chan object.Finding, len(kinds)*5)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for gk, leaves := range kinds {
		k, ok := kube.FindKind(c.Source.Kinds, gk)
		if !ok || !leaves {
			continue
		}
		for _, verb := range []string{"get", "list", "update", "patch", "delete"} {
			g.Go(func() error {
				allowed, err := c.Source.Prober.Allowed(gctx, verb, k, "")
				if err == nil && !allowed {
					results <- object.Finding{Severity: object.Error, Code: object.CodeNotAllowed,
						Message: fmt.Sprintf("the credentials for the source may not %s %s", verb,
							strings.TrimSuffix(k.Resource+"."+k.Group, ".")),
						Hint: "use credentials of an administrator of the source"}
				}
				return err
			})
		}
	}
	err := g.Wait()
	close(results)
	for f := range results {
		c.add(f)
	}
	return err
}

// checkCascade looks on the source for objects that the garbage collector would delete once their
// owners are retired.
func (c *checker) checkCascade(ctx context.Context) error {
	doomed, in, unit := map[string]object.Ref{}, map[object.Ref]bool{}, map[object.Ref]string{}
	for _, n := range c.nodes {
		if n.GroupKind() != kube.NamespaceKind.GroupKind {
			doomed[n.UID] = n.Ref
		}
		in[n.Ref], unit[n.Ref] = true, n.Unit
	}
	findings, err := restore.Dependants(ctx, c.Source.Reader, doomed,
		func(r object.Ref) bool { return in[r] || isLock(c.Rows, r, unit) },
		func(r object.Ref) string { return unit[r] })
	for _, f := range findings {
		if f.Unit == "" && f.Severity == object.Error {
			f.Severity = object.Warning // what is shared and owns something is not retired
			f.Message += "; so its owner stays on the source"
		}
		c.add(f)
	}
	return err
}

// isLock reports whether r is the lock of a provider of a Cluster in units: it is never captured and
// goes with its Cluster.
func isLock(rows *capi.Table, r object.Ref, units map[object.Ref]string) bool {
	cluster, ok := rows.ClusterOfLock(r)
	_, moves := units[cluster]
	return ok && moves
}
