package restore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// refuse leaves out what is never created from a snapshot (invariant I8): the source's own
// inventory, what belongs to the API server or to the providers, kinds that are not of Cluster API,
// and Secrets that grant access to the management cluster itself.
func (p *planner) refuse() error {
	providers := map[string]bool{}
	for _, pr := range slices.Concat(p.Snapshot.About.Providers, p.Providers) {
		providers[pr.Namespace] = true
	}
	for _, n := range p.nodes {
		namespace := n.Namespace
		if n.GroupKind() == kube.NamespaceKind.GroupKind {
			namespace = n.Name
		}
		// what the target says of its kinds: the snapshot may say anything
		k, known := kube.FindKind(p.Kinds, n.GroupKind())
		switch {
		case n.GroupKind() == capi.Provider:
			p.skipped[n] = "the target has a provider inventory of its own"
		case strings.HasPrefix(namespace, "kube-"):
			p.skipped[n] = "nothing is restored into the API server's own namespaces"
		case providers[namespace]:
			p.skipped[n] = "nothing is restored into the namespaces of providers"
		case n.Group != "" && known && !k.Contract && !p.rows().Known(n.GroupKind()):
			p.skipped[n] = "not a kind of Cluster API"
		case n.GroupKind() == kube.SecretKind.GroupKind:
			raw, err := p.Contents.Bytes(n.Ref)
			if err != nil {
				return err
			}
			switch t := gjson.GetBytes(raw, "type").String(); t {
			case "kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token":
				p.skipped[n] = "Secrets of type " + t + " grant access to a management cluster"
			}
		}
	}
	return nil
}

// checkCertificates: a workload cluster must have the certificate Secrets without which the
// controller of its control plane makes new ones, and each certificate must fit its key.
func checkCertificates(_ context.Context, p *planner) error {
	for n := range p.active {
		if n.GroupKind() != capi.Cluster {
			continue
		}
		for _, purpose := range p.certificates(n) {
			r := object.Ref{Kind: "Secret", Namespace: n.Namespace, Name: n.Name + "-" + purpose}
			if !p.inPlan(r) {
				p.add(n, object.Finding{Severity: object.Error, Code: object.CodeCAMissing, Message: "Secret " +
					r.String() + " is not in the snapshot; the control-plane provider would make a new one",
					Hint: "restore from an older snapshot that has it (mgmtctl snapshot list)"})
				continue
			}
			raw, err := p.Contents.Bytes(r)
			if err != nil {
				return err
			}
			if why := certificateProblem(raw, purpose); why != "" {
				p.add(n, object.Finding{Severity: object.Error, Code: object.CodeCAInvalid, Message: "Secret " +
					r.String() + ": " + why,
					Hint: "the workload cluster cannot be managed with it; look for an older snapshot"})
			}
		}
	}
	return nil
}

// certificates returns the suffixes of the certificate Secrets that the control plane of a Cluster
// needs.
func (p *planner) certificates(cluster *graph.Node) []string {
	for _, need := range cluster.Needs {
		if suffixes := p.rows().Row(need.GroupKind()).Certificates; suffixes != nil {
			return suffixes
		}
	}
	return nil
}

// certificateProblem says what is wrong with a certificate Secret, without a byte of it.
func certificateProblem(raw []byte, purpose string) string {
	crt, err1 := decodeBase64(gjson.GetBytes(raw, `data.tls\.crt`).String())
	key, err2 := decodeBase64(gjson.GetBytes(raw, `data.tls\.key`).String())
	if err1 != nil || err2 != nil || len(crt) == 0 {
		return "tls.crt or tls.key is missing"
	}
	if len(key) == 0 {
		// the operator keeps the key elsewhere, which the provider allows for an external CA
		return ""
	}
	if purpose == "sa" {
		if !keysMatch(crt, key) {
			return "tls.crt and tls.key do not belong together"
		}
		return ""
	}
	if _, err := tls.X509KeyPair(crt, key); err != nil {
		return "tls.crt and tls.key do not belong together, or one is damaged"
	}
	return ""
}

// checkCollisions: what is on the target already must be equal, or the unit is blocked; nothing is
// ever overwritten.
func checkCollisions(ctx context.Context, p *planner) error {
	var there []*graph.Node
	for n := range p.active {
		if p.existing[n.Ref] != "" {
			there = append(there, n)
		}
	}
	lives := make([]*unstructured.Unstructured, len(there))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(looks)
	for i, n := range there {
		g.Go(func() error {
			live, err := p.Reader.Get(gctx, p.kinds[n.GroupKind()], n.Namespace, n.Name)
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("get %s: %w", n.Ref, err)
			}
			if err == nil {
				lives[i] = live
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	atWork := unitsAtWork(there, lives)
	fields := map[string]*fieldDifferences{} // by unit
	for i, n := range there {
		if lives[i] == nil {
			delete(p.existing, n.Ref)
			continue
		}
		p.existing[n.Ref] = string(lives[i].GetUID())
		want, err := decodeObject(p.rows(), p.Contents, n.Ref)
		if err != nil {
			return err
		}
		if fields[n.Unit] == nil {
			fields[n.Unit] = &fieldDifferences{}
		}
		fields[n.Unit].add(n.Ref, p.collide(n, want, lives[i], atWork[n.Unit]))
	}
	for unit, d := range fields {
		if f, ok := d.finding(unit); ok && p.Spec.ManagedFields != FieldsNone {
			p.addAll(f)
		}
	}
	p.checkLiveClusters(there, lives)
	return nil
}

// unitsAtWork are the units whose Cluster is on the target and not paused: controllers write the
// status of everything in them.
func unitsAtWork(there []*graph.Node, lives []*unstructured.Unstructured) map[string]bool {
	atWork := map[string]bool{}
	for i, n := range there {
		if n.GroupKind() == capi.Cluster && lives[i] != nil {
			paused, _, _ := unstructured.NestedBool(lives[i].Object, "spec", "paused")
			atWork[n.Unit] = !paused
		}
	}
	return atWork
}

// checkLiveClusters blocks units whose Cluster lives unpaused on the target while others of their
// objects are missing there: its controllers would see a MachineSet without its Machines and make
// new ones.
func (p *planner) checkLiveClusters(there []*graph.Node, lives []*unstructured.Unstructured) {
	absent := map[string]int{}
	for n := range p.active {
		if n.Unit != "" && p.existing[n.Ref] == "" {
			absent[n.Unit]++
		}
	}
	for i, n := range there {
		if n.GroupKind() != capi.Cluster || lives[i] == nil {
			continue
		}
		if p.Spec.Move && !capi.PausedByUs(lives[i].Object) {
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeClusterLive,
				Message: "a Cluster of this name is on the target that no move or restore left there paused",
				Hint: "two management clusters may be reconciling one workload cluster: find out which one " +
					"it belongs to, and delete nothing before"})
			continue
		}
		if absent[n.Key().String()] == 0 {
			continue
		}
		if paused, _, _ := unstructured.NestedBool(lives[i].Object, "spec", "paused"); !paused {
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeClusterLive,
				Message: fmt.Sprintf("the workload cluster is at work on the target, and %d of its objects "+
					"are missing there", absent[n.Key().String()]),
				Hint: "pause it first (spec.paused: true): its controllers would replace what is missing " +
					"while it is being restored"})
		}
	}
}

// collide adds a finding unless live, which is on the target already, can be adopted as want. It
// returns the managedFields in which the two differ, which prevents nothing.
func (p *planner) collide(n *graph.Node, want, live *unstructured.Unstructured,
	atWork bool) (fields []string) {
	if live.GetDeletionTimestamp() != nil {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeExistsDeleting,
			Message: "the target has an object of this name that is being deleted",
			Hint:    "let the deletion finish, or find out what holds it, then plan again"})
		return nil
	}
	if other := live.GetAnnotations()[annotationOperation]; other != "" {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeLeftByOperation,
			Message: "it was left half restored by operation " + other,
			Hint: "go on with it: mgmtctl operation resume " + other +
				"; if its catalog is lost, delete the object and plan again"})
		return nil
	}
	if n.GroupKind() == kube.NamespaceKind.GroupKind {
		if missing := namespaceDifferences(p.rows(), want, live); len(missing) > 0 {
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeExistsDifferent,
				Message: "the target has this namespace with other labels or annotations: " +
					strings.Join(missing, ", "),
				Hint: "labels of a namespace can be access rules: make them equal, then plan again"})
		}
		return nil
	}
	p.forgetAbsentOwners(n, want, live)
	if n.Unit == "" {
		// workload clusters that are on the target already may own it, too
		live = withoutOwners(live, want)
	}
	paths, fields := differences(p.rows(), want, live, atWork)
	if len(paths) == 0 {
		return fields
	}
	p.add(n, object.Finding{Severity: object.Error, Code: object.CodeExistsDifferent,
		Message: "the target has another object of this name; it differs in " + strings.Join(paths, ", "),
		Hint: "find out whose it is; nothing is overwritten: delete or rename one of them, or leave " +
			"this unit out"})
	return nil
}

// differences compares an object of the snapshot with one of the target that may still be paused by
// an earlier restore of ours. The status of what a controller of the target works on says how
// things are by now, so it is no difference: a Machine that is not Ready for a moment is the same
// Machine.
func differences(rows *capi.Table, want, live *unstructured.Unstructured, unitAtWork bool) (paths,
	fields []string) {
	aspect := equality.Values
	if !capi.PausedByUs(live.Object) && rows.Row(gkOf(live)).Pause.AtWork(unitAtWork) {
		aspect = equality.Spec
	}
	paths = equality.Differences(want.Object, live.Object, aspect)
	if len(paths) > 0 && capi.PausedByUs(live.Object) {
		paused := want.DeepCopy()
		rows.Pause(paused.Object)
		paths = equality.Differences(paused.Object, live.Object, aspect)
	}
	if aspect == equality.Values {
		fields = equality.ManagedFieldsDifferences(want.Object, live.Object)
	}
	return paths, fields
}

// withoutOwners returns live with those of its owners only that want has, too.
func withoutOwners(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	refs := live.GetOwnerReferences()
	kept := slices.DeleteFunc(slices.Clone(refs), func(l metav1.OwnerReference) bool {
		return !slices.ContainsFunc(want.GetOwnerReferences(),
			func(w metav1.OwnerReference) bool { return w.Kind == l.Kind && w.Name == l.Name })
	})
	if len(kept) == len(refs) {
		return live
	}
	live = live.DeepCopy()
	live.SetOwnerReferences(kept)
	if len(kept) == 0 {
		unstructured.RemoveNestedField(live.Object, fieldMetadata, fieldOwnerReferences)
	}
	return live
}

// forgetAbsentOwners leaves out of the comparison the owners that the plan drops, and on a shared
// object the workload clusters that have not come yet.
func (p *planner) forgetAbsentOwners(n *graph.Node, want, live *unstructured.Unstructured) {
	var kept []metav1.OwnerReference
	for i, ref := range want.GetOwnerReferences() {
		has := slices.ContainsFunc(live.GetOwnerReferences(),
			func(l metav1.OwnerReference) bool { return l.Kind == ref.Kind && l.Name == ref.Name })
		if has || i < len(n.Owners) && !p.dropped[n.Owners[i].Ref] && !p.followsUnit(n, n.Owners[i].Ref) {
			kept = append(kept, ref)
		}
	}
	want.SetOwnerReferences(kept)
	if len(kept) == 0 {
		unstructured.RemoveNestedField(want.Object, fieldMetadata, fieldOwnerReferences)
	}
}

// followsUnit tells of an owner of a shared object that belongs to a unit: the reference follows
// when that unit comes to the target.
func (p *planner) followsUnit(n *graph.Node, owner object.Ref) bool {
	o := p.Snapshot.Graph.Node(owner)
	return n.Unit == "" && o != nil && o.Unit != ""
}

// namespaceDifferences looks for labels and annotations of the snapshot that the target's namespace
// lacks or has otherwise. More of them do no harm, and its status is the API server's own.
func namespaceDifferences(rows *capi.Table, want, live *unstructured.Unstructured) []string {
	volatile := rows.Row(capi.Namespace).VolatileAnnotations
	var keys []string
	for k, v := range want.GetLabels() {
		if live.GetLabels()[k] != v {
			keys = append(keys, "label "+k)
		}
	}
	for k, v := range want.GetAnnotations() {
		if live.GetAnnotations()[k] != v && !strings.HasPrefix(k, ownAnnotations) &&
			!slices.Contains(volatile, k) {
			keys = append(keys, "annotation "+k)
		}
	}
	slices.Sort(keys)
	return keys
}

// webhookTimeout bounds one dry-run: a webhook may hang for its own 10 s, a classy Cluster without
// its class for 4 s.
const webhookTimeout = 15 * time.Second

// checkWebhooks runs one object of each kind through the target's admission, dry. What admission
// thinks of the object does not matter here; that its webhooks answer does: a webhook that is down
// would refuse every object in the middle of the restore.
func checkWebhooks(ctx context.Context, p *planner) error {
	samples := map[object.GroupKind]*graph.Node{}
	for n := range p.active {
		if _, served := p.kinds[n.GroupKind()]; !served || n.Group == "" {
			continue
		}
		if have := samples[n.GroupKind()]; have == nil || softOwners(n) < softOwners(have) {
			// one that waits for nothing, such as a Cluster without a class, answers soonest
			samples[n.GroupKind()] = n
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(looks)
	for gk, n := range samples {
		g.Go(func() error {
			obj, err := decodeObject(p.rows(), p.Contents, n.Ref)
			if err != nil {
				return err
			}
			strip(obj)
			obj.SetOwnerReferences(nil)
			obj.SetName("mgmtd-preflight-" + strings.ToLower(n.Kind))
			if n.Namespace != "" && p.existing[object.Ref{Kind: "Namespace", Name: n.Namespace}] == "" {
				obj.SetNamespace("default")
			}
			dctx, cancel := context.WithTimeout(ctx, webhookTimeout)
			defer cancel()
			_, err = p.Prober.DryRunCreate(dctx, p.kinds[gk], obj)
			if down(err) {
				p.addAll(object.Finding{Severity: object.Error, Code: object.CodeWebhookDown,
					Message: fmt.Sprintf("a webhook for %s does not answer: %s", gk, safe(gk, err)),
					Hint: "wait until the provider's controllers run and their certificates are in place, " +
						"then plan again"})
			}
			return nil
		})
	}
	return g.Wait()
}

func softOwners(n *graph.Node) int {
	count := 0
	for _, need := range n.Needs {
		if need.Owner {
			count++
		}
	}
	return count
}

// down tells a webhook that does not answer from one that refuses. The API server reports the
// former as an internal error.
func down(err error) bool {
	return err != nil && (apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		errors.Is(err, context.DeadlineExceeded)) &&
		(strings.Contains(err.Error(), "webhook") || errors.Is(err, context.DeadlineExceeded))
}
