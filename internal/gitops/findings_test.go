package gitops

import (
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	suspended = "spec: {suspend: true}\n"
	// switchedBy is an entry of managedFields in which a manager owns the switch of Flux.
	switchedBy = "  managedFields:\n  - {manager: MANAGER, operation: Update, fieldsV1: " +
		"{\"f:spec\": {\"f:suspend\": {}}}}\n"
)

func by(manager string) string { return strings.Replace(switchedBy, "MANAGER", manager, 1) }

// TestSourceHasAnErrorUntilAnOwnerIsSuspendedUpToItsRoot: a parent that writes the whole spec of
// what it applies ends a suspension; Flux ends one that kubectl has set.
func TestSourceHasAnErrorUntilAnOwnerIsSuspendedUpToItsRoot(t *testing.T) {
	const (
		both = "suspend from the root down: flux suspend kustomization flux-system -n flux-system; " +
			"flux suspend kustomization apps -n flux-system"
		rootOnly = "flux suspend kustomization flux-system -n flux-system"
		app      = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  namespace: argocd
  name: web
  ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, name: fleet, uid: u}]
spec: {destination: {name: in-cluster}, syncPolicy: {}}
`
		set = `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {namespace: argocd, name: fleet}
`
		tracked = "  annotations:\n    argocd.argoproj.io/tracking-id: " +
			"web:cluster.x-k8s.io/Cluster:team-a/web\n"
	)
	for _, tt := range []struct{ name, object, owners, want string }{
		{"both are active", cluster(fluxLabels), apps + "---\n" + root, "error gitops-owner: " + both},
		{"both are suspended", cluster(fluxLabels), apps + suspended + "---\n" + root + suspended, ""},
		{"the root alone is suspended", cluster(fluxLabels), apps + "---\n" + root + suspended,
			"error gitops-owner: suspend from the root down: flux suspend kustomization apps " +
				"-n flux-system"},
		{"the child is suspended by flux", cluster(fluxLabels),
			apps + by("flux") + suspended + "---\n" + root,
			"warning gitops-owner: see that Git does not state it, or " + rootOnly},
		{"the child is suspended by kubectl", cluster(fluxLabels),
			apps + by("kubectl-patch") + suspended + "---\n" + root,
			"error gitops-owner: suspend from the root down: " + rootOnly},
		{"the root is elsewhere", cluster(fluxLabels), apps,
			"error gitops-owner-remote: " + both},
		{"an Application without automated synchronization, and an ApplicationSet", cluster(tracked),
			app + "---\n" + set, "error gitops-owner: suspend from the root down: " + suspendSet},
		{"an ApplicationSet that only creates", cluster(tracked), app + "---\n" + set +
			"spec: {syncPolicy: {applicationsSync: create-only}}\n", ""},
		{"an operation of Argo CD was asked for", cluster(tracked), strings.Replace(app, "spec:",
			"operation: {sync: {}}\nspec:", 1) + "---\n" + set +
			"spec: {syncPolicy: {applicationsSync: create-only}}\n",
			"error gitops-owner: suspend from the root down: argocd app set argocd/web --sync-policy none"},
		{"an Application elsewhere", cluster(tracked), "", "error gitops-owner-remote: find out where " +
			"it runs and suspend it there (argocd app set web --sync-policy none), or override this when " +
			"it is gone"},
		{"an object that workload clusters share", "apiVersion: cluster.x-k8s.io/v1beta2\n" +
			"kind: ClusterClass\nmetadata:\n  namespace: team-a\n  name: c\n" + fluxLabels,
			apps + "---\n" + root, "warning gitops-owner: " + both},
	} {
		got := trial(t, tt.object, tt.owners).Source(false)
		if text := strings.Join(texts(got), "\n"); text != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, text, tt.want)
		}
	}
}

const suspendSet = "kubectl patch applicationsets.argoproj.io fleet -n argocd --type merge -p " +
	`'{"spec":{"syncPolicy":{"applicationsSync":"create-only"}}}'`

// TestFindingNamesOwnerObjectsAndUnits: one finding an owner, however many objects it applies.
func TestFindingNamesOwnerObjectsAndUnits(t *testing.T) {
	machines := ""
	for _, name := range []string{"a", "b", "c", "d"} {
		machines += "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata:\n" +
			"  namespace: team-a\n  name: web-" + name + "\n" + fluxLabels
	}
	r := trial(t, cluster("")+machines, apps+"---\n"+root)
	findings := r.Source(false)
	if len(findings) != 1 {
		t.Fatalf("findings %v", findings)
	}
	f := findings[0]
	for _, words := range []string{"4 objects (MachineDeployment.cluster.x-k8s.io/team-a/web-a, ",
		"Kustomization flux-system/flux-system, Kustomization flux-system/apps are not suspended"} {
		if !strings.Contains(f.Message, words) {
			t.Errorf("no %q in %s", words, f.Message)
		}
	}
	if f.Unit != "team-a/web" || f.Ref.Name != "apps" || !f.Concerns("team-a/web") {
		t.Errorf("finding about %s, %s", f.Ref, f.Unit)
	}
}

// TestMoveThatSuspendsWarnsAndNamesTheOwnersFromTheRootDown: an owner that is elsewhere cannot be
// suspended here and stays an error.
func TestMoveThatSuspendsWarnsAndNamesTheOwnersFromTheRootDown(t *testing.T) {
	r := trial(t, cluster(fluxLabels), apps+"---\n"+root)
	if got := r.Source(true); len(got) != 1 || got[0].Severity != object.Warning {
		t.Errorf("findings %v", got)
	}
	var names []string
	for _, ref := range r.Suspend() {
		names = append(names, ref.Name)
	}
	if !slices.Equal(names, []string{"flux-system", "apps"}) {
		t.Errorf("suspends %q", names)
	}
	if got := r.UnitsOf()[r.Suspend()[0]]; !slices.Equal(got, []string{"team-a/web"}) {
		t.Errorf("units of the root %q", got)
	}
	r = trial(t, cluster(fluxLabels), "")
	if got := r.Source(true); len(got) != 1 || got[0].Severity != object.Error ||
		len(r.Suspend()) != 0 {
		t.Errorf("of an owner elsewhere: %v, suspends %v", got, r.Suspend())
	}
}

// TestTargetIsWarnedOfWhatWillApplyTheRestoredObjects: an owner that the target does not have
// applies nothing there.
func TestTargetIsWarnedOfWhatWillApplyTheRestoredObjects(t *testing.T) {
	for _, tt := range []struct{ name, owners, want string }{
		{"an active owner", apps + "---\n" + root, "warning gitops-owner"},
		{"a suspended one", apps + suspended + "---\n" + root + suspended, ""},
		{"none", "", "info gitops-owner"},
	} {
		got := trial(t, cluster(fluxLabels), tt.owners).Target(false)
		text := ""
		for _, f := range got {
			text += f.Severity.String() + " " + string(f.Code)
		}
		if text != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	tracked := cluster("  annotations:\n    argocd.argoproj.io/tracking-id: " +
		"web:cluster.x-k8s.io/Cluster:team-a/web\n")
	if got := trial(t, tracked, "").Target(false); len(got) != 1 ||
		got[0].Code != object.CodeGitOpsOwnerRemote || got[0].Severity != object.Warning {
		t.Errorf("of Argo CD elsewhere: %v", got)
	}
	if got := trial(t, tracked, "").Target(true); len(got) != 0 {
		t.Errorf("of a move, whose source reports it: %v", got)
	}
}
