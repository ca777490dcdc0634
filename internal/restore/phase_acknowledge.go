package restore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// waitAcknowledged waits until the target's controllers have seen every object of the unit and
// acknowledge its pause. A controller that lags behind its watch would, once the pause ends, act on
// the Machines that it can see: too few. What decides is whether the controllers of the target
// publish the condition Paused, which a source of an older version may lack.
func (r *run) waitAcknowledged(ctx context.Context, u Unit) error {
	var publish, silent []Object
	for _, o := range early(u.Objects) {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return err
		}
		published := capi.PublishesPause(source.Object)
		if !published && r.Rows.Row(o.GroupKind()).Pause.Acknowledged() && o.Action != Skip {
			if published, err = r.publishers.sample(ctx, r.Reader, r.kinds[o.GroupKind()]); err != nil {
				return err
			}
			if !published {
				silent = append(silent, o)
			}
		}
		if published {
			publish = append(publish, o)
		}
	}
	if err := r.awaitPause(ctx, publish); err != nil {
		return err
	}
	// for controllers that publish nothing, and for the caches of those that do
	if err := retry.Sleep(ctx, r.Tuning.Settle); err != nil {
		return err
	}
	late, err := r.publishing(ctx, silent)
	if err != nil || len(late) == 0 {
		return err
	}
	if err := r.awaitPause(ctx, late); err != nil {
		return err
	}
	return retry.Sleep(ctx, r.Tuning.Settle)
}

func (r *run) awaitPause(ctx context.Context, objects []Object) error {
	return r.wait(ctx, objects, "the target's controllers to acknowledge the pause",
		func(_ Object, _, live *unstructured.Unstructured) string {
			return capi.NotAcknowledged(live.Object, "True")
		})
}

// publishing returns those of objects whose kind publishes the condition Paused by now, on one of
// them at least.
func (r *run) publishing(ctx context.Context, objects []Object) ([]Object, error) {
	_, _, err := r.problems(ctx, objects, func(o Object, _, live *unstructured.Unstructured) string {
		if capi.PublishesPause(live.Object) {
			r.publishers.add(o.GroupKind())
		}
		return ""
	})
	return slices.DeleteFunc(slices.Clone(objects), func(o Object) bool {
		return !r.publishers.has(o.GroupKind())
	}), err
}

// publishers are the kinds of which an object on the target has the condition Paused.
type publishers struct {
	mu    sync.Mutex
	kinds map[object.GroupKind]bool // false for one that was sampled, and has shown none yet
}

// pauseSample is how many objects of a kind are read to find out whether its controller publishes
// the condition Paused. It shows it on all of them, but for those that it has not seen yet.
const pauseSample = 20

// sample reports whether a kind is among the publishers. It reads some objects of the kind once.
func (p *publishers) sample(ctx context.Context, reader Reader, k kube.Kind) (bool, error) {
	p.mu.Lock()
	published, sampled := p.kinds[k.GroupKind]
	p.mu.Unlock()
	if sampled {
		return published, nil
	}
	_, err := reader.List(ctx, k, kube.ListOptions{Limit: pauseSample}, func(raw []byte) error {
		live := &unstructured.Unstructured{}
		if err := live.UnmarshalJSON(raw); err != nil {
			return fmt.Errorf("decode %s: %w", k.GroupKind, jsonError(err))
		}
		published = published || capi.PublishesPause(live.Object)
		return nil
	})
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[k.GroupKind] = p.kinds[k.GroupKind] || published
	return p.kinds[k.GroupKind], nil
}

func (p *publishers) add(gk object.GroupKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[gk] = true
}

func (p *publishers) has(gk object.GroupKind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kinds[gk]
}

// pausedByUs reports whether the unit's Cluster carries a pause that an operation set, which the
// release ends.
func (r *run) pausedByUs(ctx context.Context, u Unit) (bool, error) {
	for _, o := range early(u.Objects) {
		if o.GroupKind() != capi.Cluster {
			continue
		}
		live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		if err != nil {
			return false, fmt.Errorf("%s: %w", o.Ref, err)
		}
		return capi.PausedByUs(live.Object), nil
	}
	return false, nil
}
