package restore

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// An object that a restore creates carries the mark of its operation: an entry of managedFields
// whose field manager is named after the operation. The API server adds the entry on create, so the
// mark is there from the first moment and costs no write. A write of status adds an entry of its
// own. Both say after a crash how far the object has come:
//
//	create ─► mark ─► status ─► mark and status mark ─► managedFields ─► no mark
//
// managedFields are written only where the snapshot's are wanted; this replaces all entries and is
// the last write of the object. Elsewhere the marks stay, and do no harm: they are plain updates,
// which own nothing against an applier.
//
// The API server merges the oldest entries of updates once there are more than 10 (apimachinery
// v0.36, util/managedfields/internal/capmanagers.go). A mark is not lost that way while it counts:
// from the create to the end of its wave, while no controller or only a few have written.

// withMark returns a context whose writes mark an object as created by this operation.
func (r *run) withMark(ctx context.Context) context.Context {
	return kube.WithFieldManager(ctx, kube.MarkPrefix+r.Operation)
}

// isMarked reports whether live carries the mark of this operation. Earlier versions marked an
// object with an annotation.
func (r *run) isMarked(live *unstructured.Unstructured) bool {
	return live.GetAnnotations()[annotationOperation] == r.Operation ||
		hasUpdater(live, kube.MarkPrefix+r.Operation, "")
}

// isUnfinished reports whether a created object may lack its status or its managedFields. An object
// without any entry in managedFields has nothing that could carry the mark, for example an empty
// ConfigMap, and was written by nobody since.
func (r *run) isUnfinished(live *unstructured.Unstructured) bool {
	return r.isMarked(live) || r.hasStatus(live) || len(managers(live)) == 0
}

// hasStatus reports whether this operation has written the status of live. What differs since then
// is the work of controllers.
func (r *run) hasStatus(live *unstructured.Unstructured) bool {
	return hasUpdater(live, kube.MarkPrefix+r.Operation, "status")
}

// creator returns the operation whose restore created u, "" when it carries no mark, and whether
// that operation, or one that completed u, has written the status.
func creator(u *unstructured.Unstructured) (operation string, status bool) {
	for _, entry := range managers(u) {
		manager, _ := entry["manager"].(string)
		id, ok := strings.CutPrefix(manager, kube.MarkPrefix)
		if !ok || entry["operation"] != string(metav1.ManagedFieldsOperationUpdate) {
			continue
		}
		if _, err := catalog.ParseOperationID(id); err != nil {
			continue
		}
		switch entry["subresource"] {
		case nil:
			operation = id
		case "status":
			status = true
		}
	}
	return operation, status
}

func hasUpdater(u *unstructured.Unstructured, manager, subresource string) bool {
	for _, entry := range managers(u) {
		of, _ := entry["subresource"].(string)
		if entry["manager"] == manager && of == subresource &&
			entry["operation"] == string(metav1.ManagedFieldsOperationUpdate) {
			return true
		}
	}
	return false
}

// managers returns the entries of managedFields.
func managers(u *unstructured.Unstructured) []map[string]any {
	var entries []map[string]any
	for _, e := range managedFields(u) {
		if entry, ok := e.(map[string]any); ok {
			entries = append(entries, entry)
		}
	}
	return entries
}
