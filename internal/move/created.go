package move

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file reports what somebody does on the source meanwhile. What is created for a unit after
// its snapshot, such as a MachineDeployment that a GitOps controller applies, is not moved. It
// stays on the source, and is reported when the unit is retired.

// labelPath is the path of LabelClusterName in the metadata of an object.
const labelPath = `labels.cluster\.x-k8s\.io/cluster-name`

// lastWrite returns when an object was last written to, by the clock of its API server; zero when
// its managedFields do not say so. What API servers write there has whole seconds.
func lastWrite(u *unstructured.Unstructured) (last time.Time) {
	for _, f := range u.GetManagedFields() {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last.UTC()
}

// createdFor returns the unit, one of those that are about to be removed, whose label an object has
// that was created since the pause of this unit and is not in its batch; "" when there is none. An
// object of the same second as the pause counts: the batch has what was there at its snapshot.
func (v *versions) createdFor(ref object.Ref, metadata gjson.Result) string {
	cluster := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: ref.Namespace, Name: metadata.Get(labelPath).String()}
	unit := cluster.Namespace + "/" + cluster.Name
	if !v.units[unit] {
		return ""
	}
	paused := v.of[cluster.String()].Written
	if _, captured := kube.FindKind(v.kinds, ref.GroupKind()); !captured || paused.IsZero() ||
		metadata.Get("creationTimestamp").Time().Before(paused) {
		return ""
	}
	return unit
}

// reportCreated reports what was created for units of a batch on the source since their snapshot.
func (m *run) reportCreated(ctx context.Context, list *versions) {
	for unit, refs := range list.created {
		_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit, object.Finding{
			Severity: object.Warning, Code: object.CodeCreatedOnSource, Unit: unit,
			Message: fmt.Sprintf("%d objects were created for it on the source after its snapshot; they "+
				"are not moved: %s", len(refs), some(refs)),
			Hint: "create what is needed on the target, and remove it from the source"}))
	}
}

// reportStaysPaused reports the units of a batch that somebody paused on the source since the plan
// of the move, which shows those that were paused by then. They stay paused after their release.
func (m *run) reportStaysPaused(ctx context.Context, b *batch) error {
	for _, u := range b.Copy.Units {
		planned := slices.ContainsFunc(m.Plan.Copy.Units,
			func(p restore.Unit) bool { return p.Name == u.Name && p.StaysPaused })
		if !u.StaysPaused || u.Blocked || planned {
			continue
		}
		if err := m.Journal.Emit(ctx, catalog.FindingEvent(u.Name, object.Finding{
			Severity: object.Warning, Code: object.CodeStaysPaused, Unit: u.Name,
			Message: "somebody has paused it on the source since the move was planned; it stays paused " +
				"on the target",
			Hint: "unpause it there (spec.paused: false) after the move, once what it was paused for is " +
				"done"})); err != nil {
			return err
		}
	}
	return nil
}
