package move

import (
	"context"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// checkPools reports pools of addresses that workload clusters which stay use, too, or that have an
// address for somebody else. On both sides such a pool would hand out the same address twice.
func checkPools(_ context.Context, c *checker) error {
	in, moves := map[string]bool{}, map[*graph.Node]bool{}
	for _, n := range c.nodes {
		in[n.Unit], moves[n] = true, true
	}
	stays := func(n *graph.Node) bool {
		if n.Unit == "" {
			return c.Rows.Row(n.GroupKind()).Address && !moves[n]
		}
		return !in[n.Unit]
	}
	for _, n := range c.nodes {
		if n.Unit != "" || !c.Rows.Row(n.GroupKind()).AddressPool {
			continue
		}
		for _, user := range c.graph.Nodes {
			uses := func(need graph.Need) bool { return need.Ref == n.Ref }
			if !stays(user) || !slices.ContainsFunc(user.Needs, uses) {
				continue
			}
			f := object.Finding{Severity: object.Error, Code: object.CodePoolShared, Ref: n.Ref,
				Message: "workload cluster " + user.Unit + ", which stays, has addresses of it, too",
				Hint:    "move all users of the pool together, or give them pools of their own"}
			if user.Unit == "" {
				f.Message = user.Ref.String() + ", which belongs to no workload cluster and stays, is one " +
					"of its addresses, or asks for one"
				f.Hint = "move its namespace as well, or give it a pool of its own"
			}
			c.add(f)
			break
		}
	}
	return nil
}

// reportBlockedUsers reports pools of addresses of which some users move and others are blocked:
// once the first one has moved, the pool gives no address on either side.
func (p *Plan) reportBlockedUsers(rows *capi.Table) {
	if p.Spec.Force.Has(object.CodePoolShared) {
		return
	}
	blocked := map[string]bool{}
	for _, u := range p.Copy.Units {
		blocked[u.Name] = u.Blocked
	}
	for _, pool := range p.Copy.Shared.Objects {
		if pool.Action == restore.Skip || !rows.Row(pool.GroupKind()).PausesPool() {
			continue
		}
		var stay []string
		for _, unit := range pool.Users {
			if blocked[unit] {
				stay = append(stay, unit)
			}
		}
		if len(stay) == 0 || len(stay) == len(pool.Users) {
			continue
		}
		slices.Sort(stay)
		p.Copy.Findings = append(p.Copy.Findings, object.Finding{Severity: object.Warning,
			Code: object.CodePoolShared, Ref: pool.Ref,
			Message: fmt.Sprintf("%d of the %d workload clusters that use it are blocked, the first: %s; "+
				"while they are on the source and others have moved, the pool is paused on both sides, "+
				"and no new Machine gets an address", len(stay), len(pool.Users), stay[0]),
			Hint: "see what blocks them, and move all users together"})
	}
}
