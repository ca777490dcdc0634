package restore

import (
	"context"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// checkKeys: the keys with which machines join a workload cluster must be in the snapshot, or on
// the target already. Machines that are made with other keys do not join those that there are.
func checkKeys(ctx context.Context, p *planner) error {
	seen := map[object.Ref]bool{}
	for n := range p.active {
		keys := p.rows().Row(n.GroupKind()).Keys
		if len(keys) == 0 || n.Unit == "" {
			continue
		}
		raw, err := p.Contents.Bytes(n.Ref)
		if err != nil {
			return err
		}
		for _, key := range keys {
			_, name, _ := strings.Cut(n.Unit, "/")
			r := object.Ref{Kind: "Secret", Namespace: n.Namespace, Name: name + "-" + key.Suffix}
			if seen[r] || !key.NeededBy(raw) || p.inPlan(r) {
				continue
			}
			seen[r] = true
			live, err := p.liveOwner(ctx, r)
			if err != nil {
				return err
			}
			if live.GetUID() != "" {
				continue
			}
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeCAMissing, Message: "Secret " +
				r.String() + " is not in the snapshot; its provider would make a new one, with which no " +
				"machine joins the others",
				Hint: "restore from an older snapshot that has it, or create it on the target as it was"})
		}
	}
	return nil
}
