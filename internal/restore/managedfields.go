package restore

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// fieldsDiffer returns the fields of a live object whose server-side appliers are not those of the
// snapshot; nil when its managedFields are not restored, or when its controller has been at work.
func (r *run) fieldsDiffer(o Object, source, live *unstructured.Unstructured) []string {
	if !r.wantsFields(source) || o.GroupKind() == kube.NamespaceKind.GroupKind ||
		!capi.PausedByUs(live.Object) && r.Rows.Row(o.GroupKind()).Pause.AtWork(false) {
		return nil
	}
	want, err := r.wantedPaused(o, source, live)
	if err != nil || want == nil {
		return nil
	}
	return equality.ManagedFieldsDifferences(want.Object, live.Object)
}

// fieldDifferences collects objects whose managedFields are not those of the snapshot. It is used
// concurrently.
type fieldDifferences struct {
	mu      sync.Mutex
	objects int
	first   object.Ref
	paths   []string
}

func (d *fieldDifferences) add(ref object.Ref, paths []string) {
	if len(paths) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects++
	if d.objects == 1 || object.CompareRefs(ref, d.first) < 0 {
		d.first, d.paths = ref, paths
	}
}

// finding is a warning about all objects of one unit; ok is false when there is none. managedFields
// say which controller may remove a field again, not what the object is, so they never keep a unit
// paused.
func (d *fieldDifferences) finding(unit string) (f object.Finding, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.objects == 0 {
		return object.Finding{}, false
	}
	const most = 5
	paths := d.paths
	more := ""
	if len(paths) > most {
		more = fmt.Sprintf(" and %d more", len(paths)-most)
		paths = paths[:most]
	}
	return object.Finding{Severity: object.Warning, Code: object.CodeManagedFields, Unit: unit,
		Ref: d.first,
		Message: fmt.Sprintf("server-side appliers do not own the same fields as in the snapshot: "+
			"%d objects, the first differs in %s%s", d.objects, strings.Join(paths, ", "), more),
		Hint: "the next apply of each controller writes its own fields again; only a field that a " +
			"controller stops applying before that has to be removed by hand"}, true
}
