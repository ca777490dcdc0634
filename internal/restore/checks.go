package restore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
)

// checks are the rows of a restore, and of the target of a move.
var checks = []preflight.Check[*planner]{
	{Name: "source", Run: checkSource},
	{Name: "ownership", Run: checkOwnership},
	{Name: "snapshot", Run: checkSnapshot},
	{Name: "complete", Run: checkComplete},
	{Name: "kinds", Run: checkKinds},
	{Name: "providers", Run: checkProviders},
	{Name: "rights", Run: checkRights},
	{Name: "owners", Run: checkOwners},
	{Name: "units", Run: checkUnits},
	{Name: "holds", Run: checkHolds},
	{Name: "needs", Run: checkNeeds},
	{Name: "certificates", Run: checkCertificates},
	{Name: "keys", Run: checkKeys},
	{Name: "collisions", Run: checkCollisions},
	{Name: "namespaces of providers", Run: checkProviderNamespaces},
	{Name: "hosted control planes", Run: checkHosted},
	{Name: "reality", Run: checkReality},
	{Name: "gitops", Run: checkGitOps},
	{Name: "autoscalers", Run: checkAutoscalers},
	{Name: "extra", Run: checkExtra},
	{Name: "selected", Run: checkSelected},
	{Name: "dry-run", Run: checkDryRun},
	{Name: "status", Run: checkStatus},
	{Name: "quotas", Run: checkQuotas},
	{Name: "workload code", Run: checkWorkloadCode},
}

// oldSnapshot is the age above which a snapshot deserves a warning: Machines made or deleted since
// are not in it.
const oldSnapshot = 24 * time.Hour

// checkSource asks for proof that no controller of the source still works (invariant I1). A restore
// into the source itself needs none: there is only one management cluster.
func checkSource(_ context.Context, p *planner) error {
	if p.Spec.SourceAtWork {
		if p.Source.Source.UID == p.Target.UID {
			p.addAll(object.Finding{Severity: object.Fatal, Code: object.CodeSameMgmt,
				Message: "source and target are the same management cluster", Hint: "name two different ones"})
		}
		return nil
	}
	if p.Source.Source.UID == p.Target.UID {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeSameMgmt,
			Message: "the target is the management cluster that the snapshot was taken of, or a copy of " +
				"it: one that was made from its etcd or its disks has the same UID",
			Hint: "if it is a copy, make sure that no controller of the original runs"})
		return nil
	}
	p.addAll(p.Evidence.Check(preflight.SourceClaim{Units: p.clusters(), Gone: p.Spec.SourceIsGone,
		NoRelease: p.Spec.NoRelease, Force: p.Spec.Force}, p.Now())...)
	return nil
}

// clusters returns the units whose Cluster is restored.
func (p *planner) clusters() (units []string) {
	for n := range p.active {
		if n.GroupKind() == capi.Cluster {
			units = append(units, n.Unit)
		}
	}
	return units
}

// checkOwnership: a workload cluster that was handed over to another management cluster is not
// restored from an old snapshot of its owner before that.
func checkOwnership(_ context.Context, p *planner) error {
	owners := p.owners()
	for n := range p.active {
		if n.GroupKind() != capi.Cluster {
			continue
		}
		if f, ok := owners.Check(n.WorkloadID); ok {
			p.add(n, f)
		}
		by := owners.Overrides(n.WorkloadID)
		for _, f := range p.Overridden[by.UID].AtWork(n.Unit, p.Now()) {
			if f.Code == object.CodeOwnerSeenRecently && p.Spec.NoRelease {
				f.Severity = object.Warning // the release asks again
			}
			p.add(n, f)
		}
	}
	return nil
}

func (p *planner) owners() preflight.Owners {
	return preflight.Owners{Records: p.Owners, Force: p.Spec.Force,
		Expected: []string{p.Source.Source.UID, p.Target.UID},
		Elsewhere: "it was moved or restored there; work with that management cluster, or take it over " +
			"when that one is gone for good",
		Damaged: "find out to which management cluster it belongs"}
}

// raiseEpochs adds to the ownership records the epochs that the Clusters carry: the bucket may show
// older records than those, and a host whose catalog is lost knows no other epochs. A copy does not
// have the records of its origin, so that there they are no older than expected.
func (p *planner) raiseEpochs() error {
	p.OriginEpochs = maps.Clone(p.OriginEpochs)
	p.Owners = maps.Clone(p.Owners)
	if p.Owners == nil {
		p.Owners = map[string]ownership.Record{}
	}
	for _, n := range p.nodes {
		if n.GroupKind() != capi.Cluster {
			continue
		}
		raw, err := p.Contents.Bytes(n.Ref)
		if err != nil {
			return err
		}
		mark := gjson.GetBytes(raw, "metadata.annotations."+gjson.Escape(capi.AnnotationEpoch))
		epoch := ownership.MarkedEpoch(p.Source.StoreID, mark.String())
		if p.OriginEpochs == nil {
			ownership.Raise(p.Owners, n.WorkloadID, epoch)
		} else if epoch > p.OriginEpochs[n.WorkloadID] {
			p.OriginEpochs[n.WorkloadID] = epoch
		}
	}
	return nil
}

func checkSnapshot(_ context.Context, p *planner) error {
	if p.Spec.SourceAtWork {
		return nil // it is taken when the source is paused
	}
	age := p.Now().Sub(p.Source.Time).Round(time.Second)
	f := object.Finding{Severity: object.Info, Code: object.CodeSnapshotAge,
		Message: fmt.Sprintf("the snapshot is %s old", age)}
	if age > oldSnapshot {
		f.Severity = object.Warning
		f.Hint = "Machines that were made or deleted since are not known to it; compare with the " +
			"infrastructure before the release"
	}
	p.addAll(f)
	if !p.Newer.IsZero() {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeNotNewest,
			Message: "a newer snapshot of this source is in the store, of " + p.Newer.Format(time.RFC3339),
			Hint:    "use the newest one unless you want the older state"})
	}
	for _, gap := range p.Gaps {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeSnapshotGap, Message: gap,
			Hint: "a snapshot was deleted, or somebody hides one: check the bucket's versions " +
				"and access log"})
	}
	if p.Snapshot.Envelope.Partial {
		p.addAll(p.partial())
	}
	for _, k := range p.Snapshot.Envelope.NotInCut {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeNotInCut,
			Message: fmt.Sprintf("objects of %s were not read at the same moment as the others", k)})
	}
	return nil
}

// partial returns the finding about a snapshot of a selection.
func (p *planner) partial() object.Finding {
	var namespaces []string
	for _, cluster := range p.Snapshot.Graph.Clusters() {
		namespaces = append(namespaces, cluster.Namespace)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	const shown = 10
	in := strings.Join(namespaces[:min(len(namespaces), shown)], ", ")
	if more := len(namespaces) - shown; more > 0 {
		in += fmt.Sprintf(" and %d more", more)
	}
	holds, lacks := "chosen namespaces", ""
	if s := p.Snapshot.About.Selection; s != nil {
		if len(s.Namespaces) > 0 {
			holds = "namespaces " + listed(s.Namespaces)
		}
		if s.Selector != "" {
			holds, lacks = "all namespaces", fmt.Sprintf("; workload clusters that %q does not select, "+
				"and what no workload cluster needs, are not in it", s.Selector)
			if len(s.Namespaces) > 0 {
				holds = "namespaces " + listed(s.Namespaces)
			}
			holds = fmt.Sprintf("workload clusters that %q selects in %s", s.Selector, holds)
		}
	}
	return object.Finding{Severity: object.Warning, Code: object.CodePartialSnapshot,
		Message: "the snapshot holds " + holds + " only; it has workload clusters of " +
			cmp.Or(in, "none") + lacks,
		Hint: "use a snapshot of everything when you need more than these"}
}

// checkKinds: every kind must be served at the version of the snapshot's objects.
func checkKinds(_ context.Context, p *planner) error {
	type place struct {
		unit string
		kind object.GroupKind
	}
	reported := map[place]bool{}
	for n := range p.active {
		if _, ok := p.kinds[n.GroupKind()]; ok || n.Unit != "" && reported[place{n.Unit, n.GroupKind()}] {
			continue
		}
		reported[place{n.Unit, n.GroupKind()}] = true
		msg := fmt.Sprintf("the target does not serve %s", n.GroupKind())
		hint := "install the provider of this kind on the target, at the version of the source or newer"
		if k, ok := kube.FindKind(p.Kinds, n.GroupKind()); ok {
			msg = fmt.Sprintf("the target serves %s at %s, the snapshot has it at %s", n.GroupKind(),
				strings.Join(k.Served, ", "), n.Version)
			hint = "install a version of the provider that serves both: an older one where the target has " +
				"dropped the version, a newer one where it does not have it yet; upgrade it after the " +
				"restore"
		}
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeKindNotServed, Message: msg,
			Hint: hint})
	}
	return nil
}

// checkProviders: every provider of whose kinds there are objects must be on the target, not older
// than on the source.
func checkProviders(_ context.Context, p *planner) error {
	used := map[string]bool{}
	for n := range p.active {
		if k, ok := kube.FindKind(p.Snapshot.About.Kinds, n.GroupKind()); ok && k.Provider != "" {
			used[k.Provider] = true
		}
	}
	source := slices.DeleteFunc(slices.Clone(p.Snapshot.About.Providers),
		func(provider kube.Provider) bool { return !used[provider.Name] })
	for _, f := range preflight.CompareProviders(source, p.Providers) {
		p.addAll(f)
	}
	return nil
}

// checkOwners: an owner that is neither restored nor on the target would leave its dependants to
// the garbage collector. What nobody needs is left out for it, and then its own dependants are.
func checkOwners(_ context.Context, p *planner) error {
	for again := true; again; {
		again = false
		for n := range p.active {
			if n.Unit == "" && len(p.users[n]) == 0 && p.reportMissingOwner(n) {
				again = true
			}
		}
	}
	for n := range p.active {
		for _, o := range n.Owners {
			if p.isMissing(n, o.Ref) && p.dropped[o.Ref] {
				p.add(n, object.Finding{Severity: object.Info, Code: object.CodeOwnerDropped,
					Message: "its owner reference to " + o.Ref.String() + " is left out"})
			}
		}
		p.reportMissingOwner(n)
	}
	return nil
}

// isMissing reports whether an owner is neither restored nor on the target.
func (p *planner) isMissing(n *graph.Node, owner object.Ref) bool {
	return !p.inPlan(owner) && p.outside[owner] == "" && !p.comesLater(n, owner)
}

// reportMissingOwner reports the owners of a node that are missing and not dropped. It returns
// whether there are any.
func (p *planner) reportMissingOwner(n *graph.Node) (missing bool) {
	for _, o := range n.Owners {
		if !p.isMissing(n, o.Ref) || p.dropped[o.Ref] {
			continue
		}
		missing = true
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeOwnerMissing,
			Message: "its owner " +
				o.Ref.String() + " is neither in what is restored nor on the target",
			Hint: "restore or create the owner first, or leave out the reference to " +
				o.Ref.String()})
	}
	return missing
}

// checkUnits reports objects in states in which a restore does not have the result that the
// operator expects.
func checkUnits(_ context.Context, p *planner) error {
	p.checkIDs()
	for n := range p.active {
		if err := checkHeld(p, n); err != nil {
			return err
		}
		switch {
		case n.Deleting && n.GroupKind() == capi.Cluster:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeDeleting,
				Message: "it was being deleted when the snapshot was taken",
				Hint:    "leave it out, or take an older snapshot"})
		case n.Deleting && p.Spec.SourceAtWork:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeDeleting,
				Message: "it is being deleted",
				Hint:    "let the deletion finish, or find out what holds it, then plan again"})
		case n.Deleting:
			p.add(n, object.Finding{Severity: object.Warning, Code: object.CodeDeleting,
				Message: "it was being deleted when the snapshot was taken and comes back to life",
				Hint:    "its controllers decide again; check it after the release"})
		}
		if err := cmp.Or(p.checkSettled(n), p.checkSharedPause(n)); err != nil {
			return err
		}
		canBePaused, err := p.canBePaused(n)
		if err != nil {
			return err
		}
		row := p.rows().Row(n.GroupKind())
		switch pause := row.Pause; {
		case !canBePaused:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodePauseUnsupported,
				Message: "it has no pause that this version can set; it would come to life before its " +
					"status is back",
				Hint: cmp.Or(row.ByHand, "restore its unit by hand, or leave it out")})
		case row.IgnoresPause:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodePauseIgnored,
				Message: "its controllers do not honour a pause: they would work on the copy before the " +
					"release",
				Hint: cmp.Or(row.ByHand, "stop its controllers until the release")})
		case !pause.Late() && !pause.Passive() && ownedByLate(p.Snapshot.Graph, n):
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeOwnerLate,
				Message: "its owner is of a kind for which no pause is known, and would have to come to " +
					"life before it", Hint: "leave the reference out"})
		case pause.Late() && p.Spec.SourceAtWork:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodePauseUnknown,
				Message: "no way to pause this kind is known: from the release until it is retired both " +
					"management clusters would work on it",
				Hint: "scale its controller on the source to zero for the time of the move"})
		case pause.Late():
			p.add(n, object.Finding{Severity: object.Warning, Code: object.CodePauseUnknown,
				Message: "no way to pause this kind is known; it is created after the release"})
		}
	}
	return nil
}

// canBePaused reports whether the target's controllers would honour the switch of a copy of n.
func (p *planner) canBePaused(n *graph.Node) (bool, error) {
	row := p.rows().Row(n.GroupKind())
	if row.PauseNeeds == "" {
		return row.CanBePaused(nil), nil
	}
	raw, err := p.Contents.Bytes(n.Ref)
	return err == nil && row.CanBePaused(raw), err
}

// checkIDs: two workload clusters with one id would share an ownership record, and the claim of one
// would fence the other. A move checks it on its source.
func (p *planner) checkIDs() {
	units := map[string]string{} // by id
	for n := range p.active {
		if n.GroupKind() != capi.Cluster || p.Spec.SourceAtWork {
			continue
		}
		if other := units[n.WorkloadID]; other != "" {
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeIDNotUnique,
				Message: "it has the same " + capi.AnnotationWorkloadID + " as " + other,
				Hint: "the annotation was copied with a manifest: leave the copy out; where the source " +
					"lives, remove the annotation from it and take another snapshot"})
		}
		units[n.WorkloadID] = n.Unit
	}
}

// checkHeld: a snapshot that was taken of a target, in the middle of a move or a restore, holds
// copies that are paused there and may be incomplete. Restored as they were before the pause, they
// would be reconciled while another management cluster has them.
func checkHeld(p *planner, n *graph.Node) error {
	if n.GroupKind() != capi.Cluster {
		return nil
	}
	raw, err := p.original.Bytes(n.Ref)
	if err != nil {
		return err
	}
	if capi.IsUnfinishedCopy(gjson.GetBytes(raw, "metadata.annotations").Map()) {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeHeld,
			Message: "it is the paused copy of " +
				"a restore or a move that was not at its end",
			Hint: "bring that operation to its end, or take an older snapshot"})
	}
	return nil
}

func checkWorkloadCode(_ context.Context, p *planner) error {
	count := map[object.GroupKind]int{}
	for n := range p.active {
		if p.rows().Row(n.GroupKind()).RunsCode != "" {
			count[n.GroupKind()]++
		}
	}
	for gk, n := range count {
		p.addAll(object.Finding{Severity: object.Info, Code: object.CodeRunsCode,
			Message: fmt.Sprintf("%s (%d): %s; the signature of the snapshot is what vouches for them", gk,
				n, p.rows().Row(gk).RunsCode)})
	}
	return nil
}
