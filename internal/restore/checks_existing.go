package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// checkCollisions: what is on the target already must be equal, or the unit is blocked; nothing is
// ever overwritten. What a pre-copy has as it is now is not read: the run verifies it.
func checkCollisions(ctx context.Context, p *planner) error {
	var there, clusters []*graph.Node
	for n := range p.active {
		if p.existing[n.Ref] == "" {
			continue
		}
		if n.GroupKind() == capi.Cluster {
			clusters = append(clusters, n)
		}
		current, err := p.isCurrentCopy(n)
		if err != nil {
			return err
		}
		if !current {
			there = append(there, n)
		}
	}
	liveClusters, err := p.getAll(ctx, clusters)
	if err != nil {
		return err
	}
	p.atWork, p.pausedByHand = unitsThere(clusters, liveClusters)
	seen := map[string]*notes{} // by unit
	// Not all of them at once: a decoded object takes many times the memory of its bytes.
	for nodes := range slices.Chunk(there, 4*planReads) {
		lives, err := p.getAll(ctx, nodes)
		if err != nil {
			return err
		}
		for i, n := range nodes {
			if lives[i] == nil {
				delete(p.existing, n.Ref)
				continue
			}
			p.existing[n.Ref] = string(lives[i].GetUID())
			if heldByOperation(lives[i]) {
				p.heldBack[n.Ref] = true
			}
			if p.isCopied(n) && lives[i].GetDeletionTimestamp() == nil {
				if err := p.checkUpdate(ctx, n, lives[i]); err != nil {
					return err
				}
				continue
			}
			want, err := decodeObject(p.rows(), p.Contents, n.Ref)
			if err != nil {
				return err
			}
			if seen[n.Unit] == nil {
				seen[n.Unit] = &notes{}
			}
			acceptPause(want, lives[i])
			p.collide(ctx, n, want, lives[i], p.workedOn(n, lives[i]), seen[n.Unit])
		}
	}
	for unit, n := range seen {
		p.addAll(n.findings(unit)...)
	}
	p.checkLiveClusters(clusters, liveClusters)
	return nil
}

// getAll reads the objects of nodes on the target; nil stands for one that is gone.
func (p *planner) getAll(ctx context.Context, nodes []*graph.Node) ([]*unstructured.Unstructured,
	error) {
	lives := make([]*unstructured.Unstructured, len(nodes))
	g, ctx := task.WithContext(ctx)
	g.SetLimit(planReads)
	for i, n := range nodes {
		g.Go(func() error {
			live, err := p.Reader.Get(ctx, p.kinds[n.GroupKind()], n.Namespace, n.Name)
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("get %s: %w", n.Ref, err)
			}
			if err == nil {
				lives[i] = live
			}
			return nil
		})
	}
	return lives, g.Wait()
}

// unitsThere returns the units whose Cluster is on the target and not paused, where controllers
// write the status of everything, and those whose Cluster was paused there by somebody else than
// us.
func unitsThere(there []*graph.Node, lives []*unstructured.Unstructured) (atWork,
	pausedByHand map[string]bool) {
	atWork, pausedByHand = map[string]bool{}, map[string]bool{}
	for i, n := range there {
		if n.GroupKind() == capi.Cluster && lives[i] != nil {
			atWork[n.Unit] = !isPaused(lives[i])
			pausedByHand[n.Unit] = isPausedByHand(lives[i])
		}
	}
	return atWork, pausedByHand
}

// workedOn reports whether controllers have written the status of a live object since the snapshot:
// its Cluster is at work, or was until an operator paused it. They have not written that of an
// object which an operation of ours has left half restored below a pause.
func (p *planner) workedOn(n *graph.Node, live *unstructured.Unstructured) bool {
	if p.pausedByHand[n.Unit] {
		operation, status := creator(live)
		return operation == "" || status
	}
	return p.atWork[n.Unit]
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
		if p.pausedByHand[n.Unit] && !p.Spec.SourceAtWork {
			p.add(n, object.Finding{Severity: object.Warning, Code: object.CodeStaysPaused,
				Message: "somebody has paused the workload cluster on the target; it stays paused",
				Hint: "unpause it (spec.paused: false) after the restore, once what it was paused for is " +
					"done"})
		}
		if p.Spec.SourceAtWork && !capi.PausedByUs(lives[i].Object) {
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeClusterLive,
				Message: "a Cluster of this name is on the target that no move or restore left there paused",
				Hint: "two management clusters may be reconciling one workload cluster: find out which one " +
					"it belongs to before you change anything"})
			continue
		}
		p.checkFenced(n, lives[i])
		if absent[n.Key().String()] == 0 {
			continue
		}
		if !isPaused(lives[i]) {
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeClusterLive,
				Message: fmt.Sprintf("the workload cluster is at work on the target, and %d of its objects "+
					"are missing there", absent[n.Key().String()]),
				Hint: "pause it first (spec.paused: true): its controllers would replace what is missing " +
					"while it is being restored"})
		}
	}
}

// checkFenced adds a finding about a Cluster that is fenced on the target of a restore, whose
// release ends the fence, unless a record that counts says to which management cluster it belongs.
// That this is no third one is a matter of checkOwnership.
func (p *planner) checkFenced(n *graph.Node, live *unstructured.Unstructured) {
	why, fenced := live.GetAnnotations()[capi.AnnotationFenced]
	record := p.Owners[n.WorkloadID]
	accounted := record.Epoch > 0 && record.Trusted && record.Damaged == nil && !record.WentBack()
	if !fenced || accounted || p.Spec.SourceAtWork || p.Spec.NoRelease {
		return
	}
	p.add(n, p.Spec.Force.Override(object.Finding{Severity: object.Error, Code: object.CodeFencedHere,
		Message: fmt.Sprintf("it is fenced on the target (%s), and no ownership record of this store "+
			"says to which management cluster it belongs", why),
		Hint: "lift the fence, which asks the records of all stores, and plan again; or make sure that " +
			"no other management cluster reconciles it"}))
}

// collide adds a finding unless live, which is on the target already, can be adopted as want. What
// differs and prevents nothing is added to seen.
func (p *planner) collide(ctx context.Context, n *graph.Node, want, live *unstructured.Unstructured,
	atWork bool, seen *notes) {
	if live.GetDeletionTimestamp() != nil && n.GroupKind() == kube.NamespaceKind.GroupKind {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeExistsDeleting,
			Message: "the target is deleting this namespace: nothing can be created in it",
			Hint: "let the deletion finish, or read the conditions of the namespace for what holds it, " +
				"then plan again"})
		return
	}
	if live.GetDeletionTimestamp() != nil {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeExistsDeleting,
			Message: "the target has an object of this name that is being deleted",
			Hint:    "let the deletion finish, or find out what holds it, then plan again"})
		return
	}
	if p.collideMarked(n, live) {
		return
	}
	if n.GroupKind() == kube.NamespaceKind.GroupKind {
		p.collideNamespace(n, want, live)
		return
	}
	p.forgetAbsentOwners(n, want, live)
	if n.Unit == "" {
		// workload clusters that are on the target already may own it, too
		live = withoutOwners(live, want)
	}
	d, fields := p.differences(ctx, n.Ref, want, live, atWork)
	if len(d.lost) == 0 {
		seen.addDeviation(n.Ref, d)
		if p.Spec.ManagedFields != FieldsNone {
			seen.add(object.CodeManagedFields, n.Ref, fields)
		}
		return
	}
	if p.rows().Row(n.GroupKind()).PerManagementCluster {
		p.add(n, object.Finding{Severity: object.Warning, Code: object.CodeExistsDifferent,
			Message: "the target has one of its own, which is used as it is; " + d.difference(),
			Hint:    "see that it serves what the one of the snapshot did"})
		return
	}
	if other, status := creator(live); other != "" && !status && want.Object["status"] != nil &&
		p.kinds[n.GroupKind()].Status {
		if p.completes(ctx, n, want, live, atWork) {
			p.addCompleted(n, other)
			return
		}
		p.addLeft(n, other, "roll back from marks, or leave this unit out, and "+
			"plan again")
		return
	}
	p.add(n, object.Finding{Severity: object.Error, Code: object.CodeExistsDifferent,
		Message: "the target has another object of this name; " + d.difference(),
		Hint: "find out who made it; nothing is overwritten: make its values equal or accept the " +
			"difference, and plan again, or leave this unit out"})
}

// collideMarked adds a finding about an object with the annotation of an operation, and reports
// whether it did: earlier versions marked what they restored, and a move away from here locks the
// Cluster, and with it what has a switch of its own. The lock of the Cluster decides for the
// objects of its unit, see checkLock.
func (p *planner) collideMarked(n *graph.Node, live *unstructured.Unstructured) bool {
	mark := live.GetAnnotations()[annotationOperation]
	operation, _, held := strings.Cut(mark, "/")
	switch {
	case mark == "" || held && n.Unit != "" && n.GroupKind() != capi.Cluster:
		return false
	case held:
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeLeftByOperation,
			Message: "operation " + operation + " moves it away from here and holds its lock",
			Hint: "resume operation " + operation + " or roll it back; when neither can be, since its " +
				"target is gone for good, remove the annotation " + annotationOperation + " from it, and " +
				"plan again"})
	default:
		p.addLeft(n, operation, "remove the annotation "+annotationOperation+
			" from the object and plan again")
	}
	return true
}

// collideNamespace adds findings about a namespace that the target has already.
func (p *planner) collideNamespace(n *graph.Node, want, live *unstructured.Unstructured) {
	labels, annotations := namespaceDifferences(p.rows(), want, live)
	if len(labels) > 0 {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeExistsDifferent,
			Message: "the target has this namespace with other labels: " + strings.Join(labels, ", "),
			Hint:    "labels of a namespace can be access rules: make them equal, then plan again"})
	}
	if len(annotations) > 0 {
		p.add(n, object.Finding{Severity: object.Warning, Code: object.CodeOtherAnnotations,
			Message: "the target has this namespace with other annotations: " +
				strings.Join(annotations, ", ")})
	}
}

// addLeft reports an object that an operation created and did not finish; orLost is what to do when
// that operation cannot be resumed. A mark in managedFields alone does not say so: it also stays on
// finished copies.
func (p *planner) addLeft(n *graph.Node, operation, orLost string) {
	p.add(n, object.Finding{Severity: object.Error, Code: object.CodeLeftByOperation,
		Message: "it was left half restored by operation " + operation,
		Hint:    "resume operation " + operation + " where its catalog is; if that is lost, " + orLost})
}

// completes reports whether this restore can complete an object that another operation created and
// whose status was never written: it is what the snapshot has but for that, and no controller works
// on it. A move completes none, since its rollback would delete what it did not create.
func (p *planner) completes(ctx context.Context, n *graph.Node,
	want, live *unstructured.Unstructured, unitAtWork bool) bool {
	if p.Spec.SourceAtWork || !capi.PausedByUs(live.Object) && (n.Unit == "" || unitAtWork) {
		return false
	}
	want = want.DeepCopy()
	if capi.PausedByUs(live.Object) {
		p.rows().Pause(want.Object)
	}
	s := p.standard()
	return len(s.judge(ctx, n.Ref, want, live, equality.Spec).lost) == 0
}

// addCompleted reports an object that this restore completes.
func (p *planner) addCompleted(n *graph.Node, operation string) {
	p.add(n, object.Finding{Severity: object.Warning, Code: object.CodeLeftByOperation,
		Message: "it was left half restored by operation " + operation + ", and is completed",
		Hint:    "make sure that operation " + operation + " does not run anywhere"})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[n] = true
}

// differences compares an object of the snapshot with one of the target that may still be paused by
// an earlier restore of ours. The status of what a controller of the target works on says how
// things are by now, so it is no difference: a Machine that is not Ready for a moment is the same
// Machine. Neither are the fields that controllers write in a workload cluster at work.
func (p *planner) differences(ctx context.Context, ref object.Ref, want,
	live *unstructured.Unstructured, unitAtWork bool) (d deviation, fields []string) {
	aspect := equality.Values
	row, pausedByUs := p.rows().Row(ref.GroupKind()), capi.PausedByUs(live.Object)
	if row.StatusWhilePaused || !pausedByUs && row.Pause.AtWork(unitAtWork) {
		aspect = equality.Spec
	}
	s := p.standard()
	d = s.judge(ctx, ref, want, live, aspect)
	if unitAtWork && !pausedByUs {
		d = d.atWork(row, want)
	}
	if len(d.lost) > 0 && pausedByUs {
		paused := want.DeepCopy()
		p.rows().Pause(paused.Object)
		d = s.judge(ctx, ref, paused, live, aspect)
	}
	if aspect == equality.Values {
		fields = equality.ManagedFieldsDifferences(p.rows(), want.Object, live.Object)
	}
	return d, fields
}

// withoutOwners returns live with those of its owners only that want has, too.
func withoutOwners(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	refs := live.GetOwnerReferences()
	remaining := slices.DeleteFunc(slices.Clone(refs), func(l metav1.OwnerReference) bool {
		return !slices.ContainsFunc(want.GetOwnerReferences(),
			func(w metav1.OwnerReference) bool { return w.Kind == l.Kind && w.Name == l.Name })
	})
	if len(remaining) == len(refs) {
		return live
	}
	live = live.DeepCopy()
	live.SetOwnerReferences(remaining)
	if len(remaining) == 0 {
		unstructured.RemoveNestedField(live.Object, fieldMetadata, fieldOwnerReferences)
	}
	return live
}

// forgetAbsentOwners leaves out of the comparison the owners that the plan drops, and on a shared
// object the workload clusters that have not come yet.
func (p *planner) forgetAbsentOwners(n *graph.Node, want, live *unstructured.Unstructured) {
	var remaining []metav1.OwnerReference
	for i, ref := range want.GetOwnerReferences() {
		has := slices.ContainsFunc(live.GetOwnerReferences(),
			func(l metav1.OwnerReference) bool { return l.Kind == ref.Kind && l.Name == ref.Name })
		if has || i < len(n.Owners) && !p.dropped[n.Owners[i].Ref] &&
			!p.comesWithUnit(n, n.Owners[i].Ref) {
			remaining = append(remaining, ref)
		}
	}
	want.SetOwnerReferences(remaining)
	if len(remaining) == 0 {
		unstructured.RemoveNestedField(want.Object, fieldMetadata, fieldOwnerReferences)
	}
}

// comesWithUnit reports whether an owner of a shared object belongs to a unit, of the snapshot or
// of those that its selector left out: the reference follows when that unit comes to the target.
func (p *planner) comesWithUnit(n *graph.Node, owner object.Ref) bool {
	o := p.Snapshot.Graph.Node(owner)
	return n.Unit == "" && (o != nil && o.Unit != "" || o == nil && slices.ContainsFunc(n.Owners,
		func(of graph.Owner) bool { return of.Ref == owner && of.LeftOut }))
}

// namespaceDifferences returns the labels and the annotations of the snapshot that the target's
// namespace lacks or has with another value. Others do no harm, and the status is written by the
// API server. Annotations are no reason to block anything: platforms write their own to each
// namespace (cattle.io/status, openshift.io/sa.scc.uid-range).
func namespaceDifferences(rows *capi.Table, want, live *unstructured.Unstructured) (labels,
	annotations []string) {
	row := rows.Row(capi.Namespace)
	for k, v := range want.GetLabels() {
		if live.GetLabels()[k] != v {
			labels = append(labels, k)
		}
	}
	for k, v := range want.GetAnnotations() {
		if live.GetAnnotations()[k] != v && !strings.HasPrefix(k, ownAnnotations) &&
			!row.IsVolatileAnnotation(k) {
			annotations = append(annotations, k)
		}
	}
	slices.Sort(labels)
	slices.Sort(annotations)
	return labels, annotations
}
