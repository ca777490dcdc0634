package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/task"
)

// mgmtChecks are the rows of the check of one management cluster.
var mgmtChecks = []preflight.Check[*mgmtCheck]{
	{Name: "providers", Run: checkProviders},
	{Name: "rights", Run: checkRights},
	{Name: "pauses", Run: checkPauses},
	{Name: "workloads", Run: checkWorkloads},
	{Name: "ownership", Run: checkOwnership},
	{Name: "came back", Run: checkCameBack},
}

func checkProviders(_ context.Context, k *mgmtCheck) error {
	if _, ok := kube.FindKind(k.kinds, capi.Cluster); !ok {
		k.add(object.Finding{Severity: object.Error, Code: object.CodeNoClusterAPI,
			Message: "it does not serve " + capi.Cluster.String(),
			Hint:    "install Cluster API, or name another management cluster"})
		return nil
	}
	for _, f := range preflight.CheckInventory(k.kinds, k.providers) {
		k.add(f)
	}
	return nil
}

// checkRights reports missing rights: those of snapshots as errors, those of restores and moves as
// warnings.
func checkRights(ctx context.Context, k *mgmtCheck) error {
	reads := preflight.Right{Verb: "list"}
	captured := slices.DeleteFunc(slices.Clone(k.kinds),
		func(kind kube.Kind) bool { return !kind.Contract && kind.Group != "" })
	missing, err := preflight.Rights(ctx, k.prober, captured, func(kind kube.Kind) []preflight.Right {
		rights := []preflight.Right{reads, {Verb: "create"}, {Verb: "update"}, {Verb: "patch"},
			{Verb: "delete"}}
		if kind.Status {
			rights = append(rights, preflight.Right{Verb: "update", Subresource: "status"})
		}
		return rights
	})
	for _, m := range missing {
		what := "the credentials may not " + m.Right.On(m.Kind)
		f := object.Finding{Severity: object.Warning, Code: object.CodeNotAllowed,
			Message: what + ": no restore into it and no move",
			Hint:    "grant it before a restore or a move; snapshots only read"}
		if m.Right == reads {
			f.Severity, f.Message, f.Hint = object.Error, what+": no snapshot of it", "grant it"
		}
		k.add(f)
	}
	return err
}

// checkPauses reports kinds that are in use and that a restore or a move cannot pause.
func checkPauses(ctx context.Context, k *mgmtCheck) error {
	g, ctx := task.WithContext(ctx)
	g.SetLimit(mgmtRequests)
	for _, kind := range k.kinds {
		row := k.rows.Row(kind.GroupKind)
		pause := row.Pause
		captured := kind.Contract || k.rows.Known(kind.GroupKind)
		if !captured || !pause.Late() && pause.Supported() && !row.IgnoresPause {
			continue
		}
		g.Go(func() error {
			r, err := k.reader.List(ctx, kind, kube.ListOptions{Limit: 1, Metadata: true},
				func([]byte) error { return nil })
			if err != nil || r.Items == 0 {
				return ignoreForbidden(err)
			}
			f := object.Finding{Severity: object.Warning, Code: object.CodePauseUnknown,
				Message: "how to pause " +
					kind.String() + " is not known: a move creates such objects after the hand-over",
				Hint: cmp.Or(row.ByHand, "see what its controller does when it finds them new")}
			if !pause.Supported() {
				f.Code, f.Message, f.Hint = object.CodePauseUnsupported, kind.String()+
					" has no pause that mgmtd can set: workload clusters that have one are blocked",
					cmp.Or(row.ByHand, "take them out of the selection, or move them by hand")
			}
			if row.IgnoresPause {
				f.Code, f.Message, f.Hint = object.CodePauseIgnored, "the controllers of "+kind.String()+
					" do not honour a pause", cmp.Or(row.ByHand, "stop them for the time of a move or a restore")
			}
			k.add(f)
			return nil
		})
	}
	return g.Wait()
}

// ignoreForbidden drops the error of a kind that we may not list: checkRights reports it.
func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// checkWorkloads reports Clusters that are paused, and marks of operations that do not run.
func checkWorkloads(ctx context.Context, k *mgmtCheck) error {
	for _, w := range k.workloads {
		if w.fenced {
			k.add(object.Finding{Severity: object.Info, Code: object.CodeFenced, Ref: w.ref,
				Unit:    unitOf(w),
				Message: "it is fenced: another management cluster owns it, or is about to",
				Hint:    "lift the fence when it is to be reconciled here"})
		} else if w.paused {
			k.add(object.Finding{Severity: object.Warning, Code: object.CodePaused, Ref: w.ref,
				Unit:    unitOf(w),
				Message: "it is paused: nothing reconciles it", Hint: "a restore or a move leaves it " +
					"paused, as it found it"})
		}
		f, found, err := k.markOf(ctx, w)
		if err != nil {
			return err
		}
		if found {
			k.add(f)
		}
	}
	return nil
}

// markOf reports the mark of an operation that does not run.
func (k *mgmtCheck) markOf(ctx context.Context, w workload) (f object.Finding, found bool,
	err error) {
	if w.operation == "" {
		return f, false, nil
	}
	f = object.Finding{Severity: object.Warning, Code: object.CodeOperationMark, Ref: w.ref,
		Unit: unitOf(w),
		Message: "it carries the mark of operation " + w.operation +
			", which this catalog does not know",
		Hint: "another host is at work on it, or its catalog is lost: resume it there"}
	if k.catalog == nil {
		return f, true, nil
	}
	op, err := k.catalog.Operation(ctx, catalog.OperationID(w.operation))
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return f, true, nil
	case err != nil:
		return f, false, err
	case !op.State.Ended():
		return f, false, nil
	}
	f.Code, f.Message = object.CodeOperationDead, fmt.Sprintf("it carries the mark of operation "+
		"%s, which is %s", w.operation, op.State)
	switch {
	case !op.State.Final():
		f.Hint = "resume operation " + w.operation + "; a move can be rolled back"
	case w.annotated:
		f.Hint = "remove the annotation " + capi.AnnotationOperation +
			" when it is reconciled nowhere else"
	default:
		f.Hint = "release the copies of operation " + w.operation +
			" when they are reconciled nowhere else"
	}
	return f, true, nil
}

func unitOf(w workload) string {
	return object.Key{Namespace: w.ref.Namespace, Name: w.ref.Name}.String()
}

// checkOwnership reports Clusters that belong to another management cluster by the ownership
// records of the store. When these cannot be read, it reports that: the other checks need no store.
func checkOwnership(ctx context.Context, k *mgmtCheck) error {
	if k.store == nil && k.away == nil || len(k.workloads) == 0 {
		return nil
	}
	var records map[string]ownership.Record
	err := k.away
	if err == nil {
		records, err = ownership.Owners(ctx, k.store)
	}
	if isStoreAway(err) && ctx.Err() == nil {
		k.add(object.Finding{Severity: object.Error, Code: object.CodeOwnersAway,
			Message: "which workload clusters belong to another management cluster is not known: " +
				err.Error(), Hint: cmp.Or(hint(err), "check again when the store can be read")})
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range aboutCopy(k.store) {
		k.add(f)
	}
	owners := preflight.Owners{Records: records, Expected: []string{k.proto.GetUid()},
		Elsewhere: "keep it paused here and find out which of the two reconciles it; the copy that " +
			"is not meant has to go",
		Damaged: "somebody changed it, or the store lost it"}
	for _, w := range k.workloads {
		f, ok := owners.Check(w.id)
		if !ok {
			continue
		}
		f.Ref, f.Unit = w.ref, unitOf(w)
		if f.Code == object.CodeOwnerDamaged {
			f.Severity = object.Warning // nothing is about to change
		}
		k.add(f)
	}
	return nil
}
