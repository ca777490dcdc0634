package move

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// Shared objects are removed before their owners, such as the templates of a class before the
// class. An owner that somebody uses must not be without what it owns, so it is asked about first,
// and what stays must not go with its owner, by the garbage collector.

// askOwners asks the source in dry-runs whether it would delete those of the objects that own
// others of them, such as classes, which are removed after what they own. Where a webhook refuses
// that, somebody may have begun to use one since the objects were found to be unneeded: it captures
// the source once more, and returns those that are unneeded by that.
func (m *run) askOwners(ctx context.Context, b *batch, objects []restore.Object) (
	[]restore.Object, error) {
	owners := map[object.Ref]bool{}
	for _, o := range objects {
		for _, owner := range o.Owners {
			owners[owner] = true
		}
	}
	err := retryRefused(ctx, func() error {
		for _, o := range objects {
			k, served := kube.FindKind(m.Source.Kinds, o.GroupKind())
			if !owners[o.Ref] || !served {
				continue
			}
			once, cancel := context.WithTimeout(ctx, dryRunTimeout)
			err := m.Source.Prober.DryRunDelete(once, k, o.Namespace, o.Name,
				types.UID(b.Source[o.Ref.String()].UID))
			cancel()
			if isUseRefused(err) && !isNoRight(err) && !isNoDryRun(err) {
				return err
			} // the removal itself tells of any other error
		}
		return nil
	})
	if !isUseRefused(err) {
		return objects, err
	}
	v, err := m.captures.after(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	return m.unneeded(ctx, v, b)
}

// retryRefused retries what a webhook refuses: its cache may not show yet that the last user is
// gone. A webhook answers with Forbidden, or with the status of its own error: that of in-cluster
// IPAM (v1.0.3, internal/webhooks/inclusterippool.go, ValidateDelete) is BadRequest.
func retryRefused(ctx context.Context, fn func() error) error {
	const tries = 10
	return retry.Do(ctx, func(failures int, err error) (time.Duration, bool) {
		return time.Second / 2, failures < tries && isUseRefused(err)
	}, func(context.Context) error { return fn() })
}

func isUseRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// ownersOfKept are the owners of shared objects that a removal has left on the source.
type ownersOfKept struct {
	mu  sync.Mutex
	own map[types.UID]object.Ref // one of what each of them owns
}

// of returns an object that stays and has the owner with this UID.
func (k *ownersOfKept) of(uid string) (kept object.Ref, owns bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept, owns = k.own[types.UID(uid)]
	return kept, owns
}

// addKept adds the owners that a shared object has in the snapshot and on the source now: one that
// was created again may have got others.
func (m *run) addKept(ctx context.Context, b *batch, o restore.Object, owners *ownersOfKept) error {
	live, err := on(ctx, m.Source, o.Ref)
	if err != nil {
		return err
	}
	var uids []types.UID
	for _, ref := range o.Owners {
		if was, known := b.Source[ref.String()]; known {
			uids = append(uids, types.UID(was.UID))
		}
	}
	if live != nil {
		for _, ref := range live.GetOwnerReferences() {
			uids = append(uids, ref.UID)
		}
	}
	owners.mu.Lock()
	defer owners.mu.Unlock()
	if owners.own == nil {
		owners.own = map[types.UID]object.Ref{}
	}
	for _, uid := range uids {
		owners.own[uid] = o.Ref
	}
	return nil
}
