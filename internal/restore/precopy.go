package restore

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// This file brings a pre-copy up to date. A pre-copy (Hooks.PreCopy) is the paused copy of a unit
// that was made while the source worked on it. Another plan, made when the source is paused, has
// its objects as Ours (Input.Copied): those that changed on the source since are written again.

// isCopied reports whether the object of a node was created on the target by the pre-copy.
func (p *planner) isCopied(n *graph.Node) bool {
	uid := p.Copied[n.Ref]
	return uid != "" && uid == p.existing[n.Ref]
}

// isCurrentCopy reports whether the pre-copy has an object as it is now, so that nothing has to be
// written of it.
func (p *planner) isCurrentCopy(n *graph.Node) (bool, error) {
	if !p.isCopied(n) || p.leaving[n.Ref] || p.Before == nil {
		return false, nil
	}
	now, err := decodeObject(p.rows(), p.Contents, n.Ref)
	return err == nil && isAsBefore(p.rows(), p.Before, n.Ref, now), err
}

// createdUIDs returns the UIDs of the objects of a unit that this run created.
func (r *run) createdUIDs(u Unit) map[object.Ref]string {
	uids := map[object.Ref]string{}
	for _, o := range u.Objects {
		if uid := r.uid(o.Ref); o.Action == Create && uid != "" {
			uids[o.Ref] = uid
		}
	}
	return uids
}

// clusterUID returns the UID on the target of the Cluster of a unit.
func (r *run) clusterUID(u Unit) string {
	for _, o := range u.Objects {
		if o.GroupKind() == capi.Cluster {
			return r.uid(o.Ref)
		}
	}
	return ""
}

// currentObjects remembers which objects are as the pre-copy has them.
type currentObjects struct {
	mu    sync.Mutex
	known map[object.Ref]bool
}

// isCurrent reports whether nothing has to be written of an object: the pre-copy has created it,
// and what was captured for that is equal to what is copied now. What differs by the pause alone is
// equal.
func (r *run) isCurrent(o Object) bool {
	if o.Action == Skip {
		return true
	}
	if !o.Ours || o.Action != Create || r.Before == nil {
		return false
	}
	r.current.mu.Lock()
	defer r.current.mu.Unlock()
	is, known := r.current.known[o.Ref]
	if known {
		return is
	}
	if now, err := decodeObject(r.Rows, r.Contents, o.Ref); err == nil {
		is = isAsBefore(r.Rows, r.Before, o.Ref, now)
	}
	if r.current.known == nil {
		r.current.known = map[object.Ref]bool{}
	}
	r.current.known[o.Ref] = is
	return is
}

// isAsBefore reports whether an object is equal to what the pre-copy was made from.
func isAsBefore(rows *capi.Table, before Contents, ref object.Ref,
	now *unstructured.Unstructured) bool {
	was, err := decodeObject(rows, before, ref)
	return err == nil && len(equality.Differences(rows, was.Object, now.Object, equality.All)) == 0
}

// checkUpdate asks the target about the write that brings an object of a pre-copy up to date, and
// adds a finding when it is refused. A webhook may not allow such a change of what is there, and
// yet allow to create the object as it is now: the caller decides.
func (p *planner) checkUpdate(ctx context.Context, n *graph.Node,
	live *unstructured.Unstructured) error {
	now, err := decodeObject(p.rows(), p.Contents, n.Ref)
	if err != nil || p.Before == nil || p.Prober == nil {
		return err
	}
	k := p.kinds[n.GroupKind()]
	k.Version = n.Version
	strip(now)
	p.rows().Pause(now.Object)
	delete(now.Object, "status")
	now.SetUID(live.GetUID())
	now.SetResourceVersion(live.GetResourceVersion())
	now.SetOwnerReferences(live.GetOwnerReferences())
	_, err = p.Prober.DryRunUpdate(ctx, k, now)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeRefusedByTarget,
			Message: "the target refuses to update its copy: " + kube.SafeText(k.GroupKind, err)})
	}
	return nil // the run tries again what nothing is known of
}

// isUntouched reports whether this run has nothing to write of a unit.
func (r *run) isUntouched(u Unit) bool {
	for _, o := range early(u.Objects) {
		if !r.isCurrent(o) {
			return false
		}
	}
	return true
}

// update writes an object that the pre-copy created as it is in the snapshot: its values, its
// status and, with the others of its wave, its managedFields. It may run again after a crash at any
// point. Once a release was begun it writes nothing: the copy was verified before that, and what
// differs is the work of controllers. A host that took the operation over may lack the record of
// the wave, but not that of the release.
func (r *run) update(ctx context.Context, made *created, unit string, o Object) error {
	if r.isCurrent(o) {
		return nil
	}
	if release, err := r.Journal.State(ctx, releaseStep(unit)); err != nil || release != "" {
		return err
	}
	source, err := decodeObject(r.Rows, r.Contents, o.Ref)
	if err != nil {
		return err
	}
	k := r.kinds[o.GroupKind()]
	body := source.DeepCopy()
	if err := r.prepare(body, o, r.workloadID[unit], unit == ""); err != nil {
		return err
	}
	if k.Status {
		delete(body.Object, "status") // the write ignores it
	}
	ctx = r.withMark(ctx)
	live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
		if apierrors.IsNotFound(err) || err == nil && (string(live.GetUID()) != o.UID ||
			live.GetDeletionTimestamp() != nil) {
			return nil, &deletedError{}
		}
		if err == nil && o.GroupKind() == capi.Cluster && !r.isPausedCopy(live) {
			err = &unpausedError{unit}
		}
		if err == nil {
			// After the read: what another host, which has taken the operation over, writes after this
			// makes the write fail.
			err = r.Journal.Alive(ctx)
		}
		if err != nil {
			return nil, err
		}
		return r.takeOver(ctx, k, body, live)
	})
	if err == nil {
		err = r.Journal.Alive(ctx)
	}
	if err != nil {
		return err
	}
	r.setAlive(o.Ref)
	if o.GroupKind() == capi.Cluster {
		return nil // completeCluster
	}
	if live, err = r.applyStatus(ctx, k, live, source); err != nil {
		return err
	}
	r.finishLater(ctx, made, k, unit, o, source, live)
	return nil
}
