package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// standard is what a copy has to meet before it may be released, be adopted or pass post-flight:
// no value of the snapshot is lost or changed. Four things are no error: what the target added,
// what its conversion between versions drops, what the operator accepts, and a renewed kubeconfig.
type standard struct {
	prober Prober
	kinds  []kube.Kind // of the target
	accept []object.AcceptedDifference
	rows   *capi.Table
}

// deviation is how far an object is from what it should be. lost is what keeps it from being
// released; the others are notes.
type deviation struct {
	lost, accepted, converted, added []string
	annotations                      []string // of a namespace
	managedFields                    []string // whose appliers are others
}

// judge compares live with want, which is at the version at which live was read.
func (s standard) judge(ctx context.Context, ref object.Ref, want, live *unstructured.Unstructured,
	aspect equality.Aspect) deviation {
	c := equality.Compare(s.rows, want.Object, live.Object, aspect)
	d := deviation{lost: c.Lost, added: c.Added}
	d.accepted, d.lost = split(d.lost, func(path string) bool {
		return s.accepts(ref.GroupKind(), path)
	})
	if slices.Contains(d.lost, kubeconfigData) && isRenewed(ref, want, live) {
		_, d.lost = split(d.lost, func(path string) bool { return path == kubeconfigData })
	}
	k, ok := kube.FindKind(s.kinds, ref.GroupKind())
	if len(d.lost) == 0 || !ok || s.prober == nil || k.APIVersion() == live.GetAPIVersion() {
		return d
	}
	k.Version = live.GroupVersionKind().Version
	dropped := s.dropped(ctx, k, want, live, aspect)
	d.converted, d.lost = split(d.lost, func(path string) bool {
		return slices.Contains(dropped, path)
	})
	return d
}

// accepts reports whether the operator accepts that a path differs.
func (s standard) accepts(gk object.GroupKind, path string) bool {
	return slices.ContainsFunc(s.accept, func(a object.AcceptedDifference) bool {
		return a.Covers(gk, path)
	})
}

// dropped returns the paths of want that the target does not store when want is written: its own
// answer to that write, as a dry-run, lacks them. It returns none when the target does not answer.
func (s standard) dropped(ctx context.Context, k kube.Kind, want, live *unstructured.Unstructured,
	aspect equality.Aspect) []string {
	body := want.DeepCopy()
	body.SetUID(live.GetUID())
	body.SetResourceVersion(live.GetResourceVersion())
	body.SetOwnerReferences(live.GetOwnerReferences())
	body.SetManagedFields(nil)
	answer, err := s.prober.DryRunUpdate(ctx, k, body)
	if err != nil {
		return nil
	}
	if k.Status && aspect != equality.Spec {
		withStatus, err := s.prober.DryRunUpdateStatus(ctx, k, body)
		if err != nil {
			return nil
		}
		answer.Object["status"] = withStatus.Object["status"]
	}
	return equality.Compare(s.rows, want.Object, answer.Object, aspect).Lost
}

func split(paths []string, in func(path string) bool) (inside, outside []string) {
	for _, path := range paths {
		if in(path) {
			inside = append(inside, path)
		} else {
			outside = append(outside, path)
		}
	}
	return inside, outside
}

// difference says why an object may not be released; "" when nothing keeps it.
func (d deviation) difference() string {
	if len(d.lost) == 0 {
		return ""
	}
	return "it differs in " + shortened(d.lost)
}

// atWork leaves out of a deviation what controllers write in objects at work. source is the object
// of the snapshot.
func (d deviation) atWork(row *capi.Row, source *unstructured.Unstructured) deviation {
	_, d.lost = split(d.lost, func(path string) bool {
		return row.IsVolatileField(source.Object, path)
	})
	return d
}

// shortened lists the first few paths.
func shortened(paths []string) string {
	const most = 5
	if len(paths) <= most {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:most], ", "), len(paths)-most)
}

// notes collects what differs in the objects of one unit without keeping it paused. It may be used
// concurrently.
type notes struct {
	mu    sync.Mutex
	notes map[object.Code]*note
}

type note struct {
	objects int
	first   object.Ref // in the order of refs
	paths   []string   // of first
}

func (n *notes) add(code object.Code, ref object.Ref, paths []string) {
	if len(paths) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.notes == nil {
		n.notes = map[object.Code]*note{}
	}
	if n.notes[code] == nil {
		n.notes[code] = &note{first: ref, paths: paths}
	}
	one := n.notes[code]
	one.objects++
	if object.CompareRefs(ref, one.first) < 0 {
		one.first, one.paths = ref, paths
	}
}

func (n *notes) addDeviation(ref object.Ref, d deviation) {
	n.add(object.CodeAddedOnTarget, ref, d.added)
	n.add(object.CodeLostInConversion, ref, d.converted)
	n.add(object.CodeDifferenceAccepted, ref, d.accepted)
	n.add(object.CodeOtherAnnotations, ref, d.annotations)
	n.add(object.CodeManagedFields, ref, d.managedFields)
}

// noteTexts are the kinds of notes in the order in which they are reported.
var noteTexts = []struct {
	code          object.Code
	severity      object.Severity
	message, hint string
}{
	{object.CodeAddedOnTarget, object.Info, "the target adds values to objects of the snapshot", ""},
	{object.CodeNotChecked, object.Info, "whether the target accepts them is not known yet", ""},
	{object.CodeLostInConversion, object.Warning,
		"the target stores objects at another version, and its conversion drops values",
		"its controllers write what they need of that again"},
	{object.CodeDifferenceAccepted, object.Warning,
		"values of the snapshot are lost or changed on the target, which the operator accepted", ""},
	{object.CodeOtherAnnotations, object.Warning,
		"the target has namespaces with other annotations than the snapshot", ""},
	// managedFields say which controller may remove a field again, not what the object is.
	{object.CodeManagedFields, object.Warning,
		"server-side appliers do not own the same fields as in the snapshot",
		"the next apply of each controller writes its own fields again; only a field that a " +
			"controller stops applying before that has to be removed by hand"},
}

// findings returns one finding for each kind of note about a unit.
func (n *notes) findings(unit string) []object.Finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []object.Finding
	for _, text := range noteTexts {
		if one := n.notes[text.code]; one != nil {
			out = append(out, object.Finding{Severity: text.severity, Code: text.code, Unit: unit,
				Ref: one.first, Hint: text.hint, Message: fmt.Sprintf("%s: %d objects, the first in %s",
					text.message, one.objects, shortened(one.paths))})
		}
	}
	return out
}
