package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/gitops"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// cluster returns a Cluster of the target as it was read.
func (m *marks) cluster(n *graph.Node) (*unstructured.Unstructured, error) {
	raw, err := m.Contents.Bytes(n.Ref)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decode %s: %w", n.Ref, jsonError(err))
	}
	return u, nil
}

// copyProblem says why a Cluster is not, or not for sure, a paused copy that nobody has released;
// nil when it is one as far as the Cluster itself says it.
func copyProblem(cluster *unstructured.Unstructured) *object.Finding {
	annotations := cluster.GetAnnotations()
	lock := annotations[capi.AnnotationOperation]
	_, fenced := annotations[capi.AnnotationFenced]
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	f := object.Finding{Severity: object.Error, Code: object.CodeCopyAtWork,
		Hint: "find out which management cluster reconciles the workload cluster before anything else"}
	switch by := pausedSince(cluster); {
	case !capi.PausedByUs(cluster.Object):
		f.Code, f.Message = object.CodeCopyUnproven, "it does not have the annotation "+
			capi.AnnotationWasPaused+", which a copy has until it is released"
	case strings.Contains(lock, "/"):
		operation, _, _ := strings.Cut(lock, "/")
		f.Code = object.CodeCopyHeld
		f.Message = "operation " + operation + " moves it away from here and holds its lock"
		f.Hint = "resume operation " + operation + " or roll it back, where its catalog is"
	case fenced:
		f.Code, f.Message = object.CodeCopyHeld, "it is fenced: it worked here, and is no copy"
		f.Hint = "lift the fence when the workload cluster belongs here"
	case !paused:
		f.Message = "it is not paused: controllers of this management cluster work on it"
	case by != "":
		f.Message = "its pause was changed after its creation, by " + by + ": controllers may have " +
			"worked on it"
	default:
		return nil
	}
	return &f
}

// pausedSince returns the field manager that has set spec.paused, or the epoch that a release
// writes, after the creation of a Cluster; "" when only its creation did. Entries that a restore
// has copied from the source are older than the Cluster.
func pausedSince(cluster *unstructured.Unstructured) string {
	created := creationTime(cluster)
	for _, entry := range managers(cluster) {
		manager, _ := entry["manager"].(string)
		text, _ := entry["time"].(string)
		at, err := time.Parse(time.RFC3339, text)
		fields, _ := entry["fieldsV1"].(map[string]any)
		_, paused, _ := unstructured.NestedFieldNoCopy(fields, "f:spec", "f:paused")
		_, epoch, _ := unstructured.NestedFieldNoCopy(fields, "f:metadata", "f:annotations",
			"f:"+capi.AnnotationEpoch)
		if markOf(manager) == "" && err == nil && !at.Before(created) &&
			(paused || epoch && manager == kube.DefaultFieldManager) {
			return manager
		}
	}
	return ""
}

func creationTime(u *unstructured.Unstructured) time.Time { return u.GetCreationTimestamp().Time }

// markOf returns the operation that a field manager is named after, "" when it is no mark.
func markOf(manager string) string {
	id, ok := strings.CutPrefix(manager, kube.MarkPrefix)
	if _, err := catalog.ParseOperationID(id); !ok || err != nil {
		return ""
	}
	return id
}

// creatorOf returns the operation that created an object, by its mark; "" when it has none.
func creatorOf(u *unstructured.Unstructured) string {
	operation, _ := creator(u)
	return operation
}

// creatorIn is creatorOf for the JSON of an object, which it does not decode as a whole.
func (m *marks) creatorIn(n *graph.Node) (operation string, err error) {
	raw, err := m.Contents.Bytes(n.Ref)
	if err != nil {
		return "", err
	}
	gjson.GetBytes(raw, "metadata.managedFields").ForEach(func(_, e gjson.Result) bool {
		if e.Get("operation").String() == "Update" && e.Get("subresource").String() == "" {
			operation = markOf(e.Get("manager").String())
		}
		return operation == ""
	})
	return operation, nil
}

// proven returns the objects of a unit that operations of ours created: the Cluster, what hangs
// below it by owner references, whose UIDs are of this Cluster, and what has the mark of one of the
// operations that made these. It returns these operations, too.
func (m *marks) proven(cluster *graph.Node) (in map[*graph.Node]bool, operations []string,
	err error) {
	in = map[*graph.Node]bool{cluster: true}
	for again := true; again; {
		again = false
		for _, n := range m.nodes[cluster.Unit] {
			if !in[n] && slices.ContainsFunc(n.Owners,
				func(o graph.Owner) bool { owner := m.Graph.Owner(o); return owner != nil && in[owner] }) {
				in[n], again = true, true
			}
		}
	}
	made := map[string]bool{}
	marked := map[*graph.Node]string{}
	for _, n := range m.nodes[cluster.Unit] {
		if marked[n], err = m.creatorIn(n); err != nil {
			return nil, nil, err
		}
		if in[n] && marked[n] != "" {
			made[marked[n]] = true
		}
	}
	for n, operation := range marked {
		if made[operation] {
			in[n] = true
		}
	}
	return in, slices.Sorted(maps.Keys(made)), nil
}

// gitOpsOwned reports whether a tool applies an object.
func (m *marks) gitOpsOwned(n *graph.Node) bool {
	raw, err := m.Contents.Bytes(n.Ref)
	return err == nil && gitops.Marked(n.Ref, raw)
}

// planShared adds the objects outside of units that lose an owner among what is removed, and those
// that are removed: a lost operation created them, and none of its workload clusters stays here.
// Undo leaves those that others need by then. Namespaces stay.
func (m *marks) planShared() error {
	stays := map[string]bool{} // operations whose workload clusters are here
	for unit, nodes := range m.nodes {
		for _, n := range nodes {
			if _, removed := m.out[n.Ref]; removed || unit == "" {
				continue
			}
			operation, err := m.creatorIn(n)
			if err != nil {
				return err
			}
			stays[operation] = true
		}
	}
	var remove, disown []*graph.Node
	for _, n := range m.nodes[""] {
		operation, err := m.creatorIn(n)
		if err != nil {
			return err
		}
		switch {
		case n.GroupKind() == capi.Namespace:
		case m.lost[operation] && !stays[operation]:
			remove = append(remove, n)
		case slices.ContainsFunc(n.Owners, func(o graph.Owner) bool { return m.out[o.Ref] != "" }):
			disown = append(disown, n)
		}
	}
	for i, wave := range m.Graph.Waves(remove) {
		for _, n := range wave {
			o := m.object(n)
			o.Wave = i + 1
			m.plan.Shared.Objects = append(m.plan.Shared.Objects, o)
		}
	}
	for _, n := range disown {
		o := m.object(n)
		o.Action, o.Ours = Adopt, false
		o.Wave = len(m.plan.Shared.Objects) + 1
		m.plan.Shared.Objects = append(m.plan.Shared.Objects, o)
	}
	return nil
}
