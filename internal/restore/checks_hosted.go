package restore

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/object"
)

// checkHosted: a control plane that ran on the lost management cluster is lost with it. The source
// of a move is at work, and a restore into the source finds what is left there.
func checkHosted(_ context.Context, p *planner) error {
	if p.Spec.SourceAtWork || p.Source.Source.UID == p.Target.UID {
		return nil
	}
	for n := range p.active {
		if !p.rows().Row(n.GroupKind()).HostedEtcd || p.atWork[n.Unit] {
			continue
		}
		f := object.Finding{Severity: object.Error, Code: object.CodeHostedControlPlane,
			Message: "this control plane ran on the source management cluster, and its etcd with it: " +
				"after the release its provider makes an empty one",
			Hint: "bring its etcd back on the target from a backup of its own, and leave the workload " +
				"cluster out until then"}
		if p.Spec.NoRelease || p.Spec.Force.Has(object.CodeHostedControlPlane) {
			f.Severity = object.Warning
		}
		p.add(n, f)
	}
	return nil
}
