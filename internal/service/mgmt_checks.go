package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// mgmtChecks are run one after the other; each adds what it finds.
var mgmtChecks = []func(context.Context, *mgmtCheck) error{checkProviders, checkRights, checkPauses,
	checkWorkloads, checkOwnership}

func checkProviders(_ context.Context, k *mgmtCheck) error {
	if _, ok := kube.FindKind(k.kinds, capi.Cluster); !ok {
		k.add(object.Finding{Severity: object.Error, Code: object.CodeNoClusterAPI,
			Message: "it does not serve Cluster." + capi.Cluster.Group,
			Hint:    "install Cluster API, or name another management cluster"})
		return nil
	}
	if len(k.proto.GetProviders()) == 0 {
		k.add(object.Finding{Severity: object.Info, Code: object.CodeNoInventory,
			Message: "clusterctl did not install its providers, so their versions are not known",
			Hint:    "compare them by hand before a restore or a move"})
	}
	provided := map[string]bool{}
	for _, kind := range k.kinds {
		if kind.Contract && kind.Provider != "" {
			provided[kind.Provider] = true
		}
	}
	for _, p := range k.proto.GetProviders() {
		// Runtime extensions and add-on providers bring no kinds of their own.
		if kinds, _, _ := strings.Cut(p.GetName(), "-"); !provided[p.GetName()] &&
			(kinds == "infrastructure" || kinds == "bootstrap" || kinds == "control" || kinds == "cluster") {
			k.add(object.Finding{Severity: object.Warning, Code: object.CodeContractMissing,
				Message: fmt.Sprintf("provider %s %s is installed, and no kind carries its label and a "+
					"contract version", p.GetName(), p.GetVersion()),
				Hint: "its kinds may not be captured: see mgmtctl snapshot coverage, and install the " +
					"provider anew"})
		}
	}
	return nil
}

// right is what a snapshot (reads only) or a restore or move (all) needs.
type right struct {
	verb, subresource string
	reads             bool
}

// checkRights asks the API server; nothing is tried.
func checkRights(ctx context.Context, k *mgmtCheck) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(looks)
	for _, kind := range k.kinds {
		if !kind.Contract && kind.Group != "" {
			continue
		}
		rights := []right{{"list", "", true}, {"create", "", false}, {"update", "", false},
			{"patch", "", false}, {"delete", "", false}}
		if kind.Status {
			rights = append(rights, right{"update", "status", false})
		}
		for _, r := range rights {
			g.Go(func() error {
				ok, err := k.prober.Allowed(ctx, r.verb, kind, r.subresource)
				if err != nil || ok {
					return err
				}
				what := strings.TrimSuffix(kind.Resource+"."+kind.Group, ".")
				if r.subresource != "" {
					what += "/" + r.subresource
				}
				f := object.Finding{Severity: object.Warning, Code: object.CodeNotAllowed,
					Message: fmt.Sprintf("the credentials may not %s %s: no restore into it and no move", r.verb,
						what),
					Hint: "grant it before a restore or a move; snapshots only read"}
				if r.reads {
					f.Severity, f.Message, f.Hint = object.Error, fmt.Sprintf("the credentials may not %s %s: no "+
						"snapshot of it", r.verb, what), "grant it"
				}
				k.add(f)
				return nil
			})
		}
	}
	return g.Wait()
}

// checkPauses names kinds that are in use and that a restore or move cannot hold still.
func checkPauses(ctx context.Context, k *mgmtCheck) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(looks)
	for _, kind := range k.kinds {
		pause := k.rows.Row(kind.GroupKind).Pause
		if !kind.Contract || !pause.Late() && pause.Supported() {
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
				Hint: "see what its controller does when it finds them new"}
			if !pause.Supported() {
				f.Code, f.Message, f.Hint = object.CodePauseUnsupported, kind.String()+
					" has a switch of its own, which mgmtd does not set: workload clusters that have "+
					"one are blocked", "take them out of the selection, or move them by hand"
			}
			k.add(f)
			return nil
		})
	}
	return g.Wait()
}

// ignoreForbidden leaves what we may not list to checkRights.
func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// checkWorkloads tells of Clusters that are paused, and of marks of operations that nobody works
// on.
func checkWorkloads(ctx context.Context, k *mgmtCheck) error {
	for _, w := range k.workloads {
		if w.paused {
			k.add(object.Finding{Severity: object.Warning, Code: object.CodePaused, Ref: w.ref,
				Unit:    unitOf(w),
				Message: "it is paused: nothing reconciles it", Hint: "a restore or a move leaves it " +
					"paused, as it found it"})
		}
		mark := w.annotations[capi.AnnotationOperation]
		if mark == "" {
			continue
		}
		id, _, _ := strings.Cut(mark, "/")
		f := object.Finding{Severity: object.Warning, Code: object.CodeOperationMark, Ref: w.ref,
			Unit:    unitOf(w),
			Message: "it carries the mark of operation " + id + ", which this catalog does not know",
			Hint:    "another host is at work on it, or its catalog is lost: resume it there"}
		if k.catalog != nil {
			op, err := k.catalog.Operation(ctx, catalog.OperationID(id))
			if err != nil && !errors.Is(err, catalog.ErrNotFound) {
				return err
			}
			if err == nil {
				if !op.State.Ended() {
					continue
				}
				f.Code, f.Message = object.CodeOperationDead, fmt.Sprintf("it carries the mark of operation "+
					"%s, which is %s", id, op.State)
				f.Hint = "mgmtctl operation resume " + id + " goes on with it; a move can be rolled back"
				if op.State.Final() {
					f.Hint = "remove the annotation " + capi.AnnotationOperation +
						" when it is reconciled nowhere else"
				}
			}
		}
		k.add(f)
	}
	return nil
}

func unitOf(w workload) string {
	return object.Key{Namespace: w.ref.Namespace, Name: w.ref.Name}.String()
}

// checkOwnership compares with the ownership records of the store.
func checkOwnership(ctx context.Context, k *mgmtCheck) error {
	if k.store == nil || len(k.workloads) == 0 {
		return nil
	}
	here := map[string]workload{}
	for _, w := range k.workloads {
		here[w.id] = w
	}
	return k.store.Owners(ctx, func(id string, o store.SignedOwner, err error) error {
		w, ok := here[id]
		if !ok {
			return nil
		}
		if err != nil {
			k.add(object.Finding{Severity: object.Warning, Code: object.CodeOwnerDamaged, Ref: w.ref,
				Unit:    unitOf(w),
				Message: "its ownership record cannot be read: " + err.Error(),
				Hint:    "somebody changed it, or the store lost it"})
			return nil
		}
		if o.Owner.Owner.UID == k.proto.GetUid() {
			return nil
		}
		f := object.Finding{Severity: object.Error, Code: object.CodeOwnedElsewhere, Ref: w.ref,
			Unit: unitOf(w),
			Message: fmt.Sprintf("its ownership record says since %s (epoch %d, operation %s) that "+
				"management cluster %s owns it", o.Time.Format("2006-01-02 15:04:05Z"), o.Epoch, o.Operation,
				o.Owner.Owner.Name),
			Hint: "keep it paused here and look which of the two reconciles it; the copy that is not " +
				"meant has to go"}
		if untrusted := o.RequireTrusted(); untrusted != nil && k.store.Encrypted() {
			f.Severity, f.Code, f.Message = object.Warning, object.CodeOwnerUntrusted, f.Message+
				"; no trusted key signed that"
		}
		k.add(f)
		return nil
	})
}
