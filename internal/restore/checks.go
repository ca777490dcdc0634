package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// check is one pre-flight check. It adds findings; an error means that it could not be carried out.
type check struct {
	name string
	run  func(ctx context.Context, p *planner) error
}

// checks are the pre-flight checks, in the order in which they run. All run, whatever the others
// find.
var checks = []check{
	{"source", checkSource},
	{"ownership", checkOwnership},
	{"snapshot", checkSnapshot},
	{"kinds", checkKinds},
	{"providers", checkProviders},
	{"rights", checkRights},
	{"owners", checkOwners},
	{"units", checkUnits},
	{"needs", checkNeeds},
	{"certificates", checkCertificates},
	{"collisions", checkCollisions},
	{"webhooks", checkWebhooks},
	{"workload code", checkWorkloadCode},
}

// oldSnapshot is the age above which a snapshot deserves a warning: Machines made or deleted since
// are not in it.
const oldSnapshot = 24 * time.Hour

// checkSource asks for proof that no controller of the source still works (invariant I1). A restore
// into the source itself needs none: there is only one management cluster.
func checkSource(_ context.Context, p *planner) error {
	if p.Spec.Move {
		if p.Source.Source.UID == p.Target.UID {
			p.addAll(object.Finding{Severity: object.Fatal, Code: object.CodeSameMgmt,
				Message: "source and target are the same management cluster", Hint: "name two different ones"})
		}
		return nil
	}
	if p.Source.Source.UID == p.Target.UID {
		p.addAll(object.Finding{Severity: object.Info, Code: object.CodeSameMgmt,
			Message: "the target is the management cluster that the snapshot was taken of"})
		return nil
	}
	if interval := time.Duration(p.Snapshot.Envelope.Interval) * time.Second; p.Spec.SourceIsGone &&
		!p.Spec.NoRelease && !p.Spec.Force.Has(object.CodeSourceAlive) &&
		interval > 0 && p.Now().Sub(p.Newer) < 3*interval {
		p.addAll(object.Finding{Severity: object.Fatal, Code: object.CodeSourceAlive,
			Message: fmt.Sprintf("the newest snapshot is %s old and the schedule takes one every %s: the "+
				"source may well be at work", p.Now().Sub(p.Newer).Round(time.Second), interval),
			Hint: "make sure that its controllers do not run, then say --force as well"})
		return nil
	}
	if p.Spec.NoRelease || p.Spec.SourceIsGone {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeSourceMayReturn,
			Message: fmt.Sprintf("if management cluster %s (%s) comes back, both reconcile the same "+
				"infrastructure", p.Source.Source.Name, p.Source.Source.UID),
			Hint: "only revoking its infrastructure credentials prevents that"})
		return nil
	}
	p.addAll(object.Finding{Severity: object.Fatal, Code: object.CodeSourceNotGone,
		Message: fmt.Sprintf("nothing proves that management cluster %s is gone; two that reconcile "+
			"one workload cluster destroy it", p.Source.Source.Name),
		Hint: "make sure that its controllers do not run, then say so with --source-is-gone; or " +
			"restore with --no-release, which leaves everything paused"})
	return nil
}

// checkOwnership: a workload cluster that was handed over to another management cluster is not
// taken from an old snapshot of the one that had it before.
func checkOwnership(_ context.Context, p *planner) error {
	for n := range p.active {
		owned, ok := p.Owners[n.WorkloadID]
		if n.GroupKind() == capi.Cluster && owned.Damaged &&
			!p.Spec.Force.Has(object.CodeOwnerDamaged) {
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeOwnerDamaged,
				Message: "its ownership record cannot be read", Hint: "find out to which management cluster " +
					"it belongs, then go on with --force"})
			continue
		}
		if n.GroupKind() != capi.Cluster || !ok || owned.By.UID == p.Source.Source.UID ||
			owned.By.UID == p.Target.UID {
			continue
		}
		f := object.Finding{Severity: object.Error, Code: object.CodeOwnedElsewhere,
			Message: fmt.Sprintf("its ownership record (epoch %d) says that it belongs to management "+
				"cluster %s (%s)", owned.Epoch, owned.By.Name, owned.By.UID),
			Hint: "it was moved or restored there; work with that management cluster, or take it over " +
				"with --force when that one is gone for good"}
		switch {
		case !owned.Trusted:
			f.Severity, f.Code = object.Warning, object.CodeOwnerUntrusted
			f.Hint = "no trusted key signed the record, so it is not obeyed; find out who wrote it"
		case p.Spec.Force.Has(object.CodeOwnedElsewhere):
			f.Severity = object.Warning
		}
		p.add(n, f)
	}
	return nil
}

func checkSnapshot(_ context.Context, p *planner) error {
	if p.Spec.Move {
		return nil // it is taken when the source stands still
	}
	age := p.Now().Sub(p.Source.Time).Round(time.Second)
	f := object.Finding{Severity: object.Info, Code: object.CodeSnapshotAge,
		Message: fmt.Sprintf("the snapshot is %s old", age)}
	if age > oldSnapshot {
		f.Severity = object.Warning
		f.Hint = "Machines that were made or deleted since are not known to it; compare with the " +
			"infrastructure before the release (--no-release)"
	}
	p.addAll(f)
	if p.Newer.After(p.Source.Time) {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeNotNewest,
			Message: "a newer snapshot of this source is in the store, of " + p.Newer.Format(time.RFC3339),
			Hint:    "use --snapshot latest"})
	}
	for _, gap := range p.Gaps {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeSnapshotGap, Message: gap,
			Hint: "a snapshot was deleted, or somebody hides one: look at the bucket's versions " +
				"and access log"})
	}
	if p.Snapshot.Envelope.Partial {
		p.addAll(object.Finding{Severity: object.Info, Code: object.CodePartialSnapshot,
			Message: "the snapshot holds chosen namespaces only"})
	}
	for _, k := range p.Snapshot.Envelope.NotInCut {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeNotInCut,
			Message: fmt.Sprintf("objects of %s were not read at the same moment as the others", k)})
	}
	return nil
}

// checkKinds: every kind must be served at the version of the snapshot's objects.
func checkKinds(_ context.Context, p *planner) error {
	type place struct {
		unit string
		kind object.GroupKind
	}
	told := map[place]bool{}
	for n := range p.active {
		if _, ok := p.kinds[n.GroupKind()]; ok || n.Unit != "" && told[place{n.Unit, n.GroupKind()}] {
			continue
		}
		told[place{n.Unit, n.GroupKind()}] = true
		msg := fmt.Sprintf("the target does not serve %s", n.GroupKind())
		if k, ok := kube.FindKind(p.Kinds, n.GroupKind()); ok {
			msg = fmt.Sprintf("the target serves %s at %s, the snapshot has it at %s", n.GroupKind(),
				strings.Join(k.Served, ", "), n.Version)
		}
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeKindNotServed, Message: msg,
			Hint: "install the provider of this kind on the target, at the version of the source or newer"})
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
	for _, want := range p.Snapshot.About.Providers {
		if !used[want.Name] {
			continue
		}
		i := slices.IndexFunc(p.Providers, func(have kube.Provider) bool {
			return have.Name == want.Name
		})
		if i < 0 {
			p.addAll(object.Finding{Severity: object.Error, Code: object.CodeProviderMissing,
				Message: fmt.Sprintf("provider %s %s of the source is not in the target's inventory", want.Name,
					want.Version),
				Hint: "install it with clusterctl init, at that version or newer"})
			continue
		}
		if older(p.Providers[i].Version, want.Version) &&
			!p.Spec.Force.Has(object.CodeProviderOlder) {
			p.addAll(object.Finding{Severity: object.Error, Code: object.CodeProviderOlder,
				Message: fmt.Sprintf("provider %s is %s on the target, older than %s on the source", want.Name,
					p.Providers[i].Version, want.Version),
				Hint: "upgrade it with clusterctl upgrade, or take the risk with --force"})
		}
	}
	return nil
}

// older compares provider versions; what does not parse is not judged.
func older(have, want string) bool {
	h, err1 := version.ParseSemantic(have)
	w, err2 := version.ParseSemantic(want)
	return err1 == nil && err2 == nil && h.LessThan(w)
}

// checkRights asks the target whether our credentials may do all that the restore does.
func checkRights(ctx context.Context, p *planner) error {
	type right struct{ verb, sub string }
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(looks)
	for _, k := range p.kinds {
		rights := []right{{"get", ""}, {"list", ""}, {"create", ""}, {"update", ""}}
		if k.Status {
			rights = append(rights, right{"update", "status"})
		}
		for _, r := range rights {
			g.Go(func() error {
				ok, err := p.Prober.Allowed(ctx, r.verb, k, r.sub)
				if err != nil || ok {
					return err
				}
				what := k.Resource + "." + k.Group
				if r.sub != "" {
					what += "/" + r.sub
				}
				p.addAll(object.Finding{Severity: object.Error, Code: object.CodeNotAllowed,
					Message: fmt.Sprintf("the credentials for the target may not %s %s", r.verb,
						strings.TrimSuffix(what, ".")),
					Hint: "use credentials of an administrator of the target"})
				return nil
			})
		}
	}
	return g.Wait()
}

// checkOwners: an owner that is neither restored nor on the target would leave its dependants to
// the garbage collector.
func checkOwners(_ context.Context, p *planner) error {
	for n := range p.active {
		for _, o := range n.Owners {
			if p.inPlan(o.Ref) || p.outside[o.Ref] != "" || p.comesLater(n, o.Ref) {
				continue
			}
			if p.dropped[o.Ref] {
				p.add(n, object.Finding{Severity: object.Info, Code: object.CodeOwnerDropped,
					Message: "its owner reference to " + o.Ref.String() + " is left out"})
				continue
			}
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeOwnerMissing,
				Message: "its owner " +
					o.Ref.String() + " is neither in what is restored nor on the target",
				Hint: "restore or create the owner first, or leave the reference out with --drop-owner " +
					o.Ref.String()})
		}
	}
	return nil
}

// checkUnits looks for states of objects in which a restore is not what the operator would expect.
func checkUnits(_ context.Context, p *planner) error {
	for n := range p.active {
		if err := checkHeld(p, n); err != nil {
			return err
		}
		switch {
		case n.Deleting && n.GroupKind() == capi.Cluster:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeDeleting,
				Message: "it was being deleted when the snapshot was taken",
				Hint:    "leave it out, or take an older snapshot"})
		case n.Deleting && p.Spec.Move:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeDeleting,
				Message: "it is being deleted",
				Hint:    "let the deletion finish, or find out what holds it, then plan again"})
		case n.Deleting:
			p.add(n, object.Finding{Severity: object.Warning, Code: object.CodeDeleting,
				Message: "it was being deleted when the snapshot was taken and comes back to life",
				Hint:    "its controllers decide anew; look at it after the release"})
		}
		switch pause := p.rows().Row(n.GroupKind()).Pause; {
		case !pause.Supported():
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodePauseUnsupported,
				Message: "this kind has a pause of its own that this version cannot set; it would come to " +
					"life before its status is back",
				Hint: "restore its unit by hand, or leave it out"})
		case !pause.Late() && !pause.Passive() && ownedByLate(p.Snapshot.Graph, n):
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeOwnerLate,
				Message: "its owner is of a kind for which no pause is known, and would have to come to " +
					"life before it", Hint: "leave the reference out with --drop-owner"})
		case pause.Late() && p.Spec.Move &&
			!p.Spec.Force.Has(object.CodePauseUnknown):
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodePauseUnknown,
				Message: "no way to pause this kind is known: from the release until it is retired both " +
					"management clusters would work on it",
				Hint: "scale its controller on the source to zero for the time of the move, then go on " +
					"with --force"})
		case pause.Late():
			p.add(n, object.Finding{Severity: object.Warning, Code: object.CodePauseUnknown,
				Message: "no way to pause this kind is known; it is created after the release"})
		}
	}
	return nil
}

// checkHeld: a snapshot that was taken of a target, in the middle of a move or a restore, holds
// copies that stand still there and may be half. Given back as they were before the pause, they
// would come to life while another management cluster has them.
func checkHeld(p *planner, n *graph.Node) error {
	if n.GroupKind() != capi.Cluster || p.Spec.Force.Has(object.CodeHeld) {
		return nil
	}
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil {
		return err
	}
	annotations := gjson.GetBytes(raw, "metadata.annotations").Map()
	// the lock that a move has on its source
	locked := strings.Contains(annotations[capi.AnnotationOperation].String(), "/")
	if annotations[capi.AnnotationWasPaused].Exists() && !locked {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeHeld,
			Message: "it is the paused copy of " +
				"a restore or a move that was not at its end",
			Hint: "bring that operation to its end, or take an older snapshot; with --force it is given " +
				"back as it was before the pause"})
	}
	return nil
}

// checkNeeds tells what objects name and the snapshot does not hold.
func checkNeeds(_ context.Context, p *planner) error {
	for _, m := range p.Snapshot.Graph.Missing {
		if by := p.Snapshot.Graph.Node(m.By); !m.Owner && p.inPlan(m.By) {
			p.add(by, object.Finding{Severity: object.Warning, Code: object.CodeNeedMissing,
				Message: fmt.Sprintf("it names %s in %s, which is not in the snapshot", m.Ref, m.Field),
				Hint:    "see that the target has it before the release (--no-release)"})
		}
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
