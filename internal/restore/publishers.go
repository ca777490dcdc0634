package restore

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// publishers are the kinds of which an object on the target has the condition Paused. A copy gets
// it from controllers of the target alone: the condition of the source is not restored.
type publishers struct {
	mu    sync.Mutex
	kinds map[object.GroupKind]bool // false for a kind that was sampled and has shown none yet
}

// pauseSample is how many objects of a kind are read to find out whether its controller publishes
// the condition Paused: some, since the controller does not get as far as that with each of them.
const pauseSample = 20

// sample reports whether a kind is among the publishers. It reads some objects of the kind once.
func (p *publishers) sample(ctx context.Context, reader Reader, k kube.Kind) (bool, error) {
	p.mu.Lock()
	published, sampled := p.kinds[k.GroupKind]
	p.mu.Unlock()
	if sampled {
		return published, nil
	}
	err := kube.Retry(ctx, func() error {
		_, err := reader.List(ctx, k, kube.ListOptions{Limit: pauseSample}, func(raw []byte) error {
			live := &unstructured.Unstructured{}
			if err := live.UnmarshalJSON(raw); err != nil {
				return fmt.Errorf("decode %s: %w", k.GroupKind, jsonError(err))
			}
			published = published || capi.PublishesPause(live.Object)
			return nil
		})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("list %s: %w", k.GroupKind, kube.SafeError(k.GroupKind, err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[k.GroupKind] = p.kinds[k.GroupKind] || published
	return p.kinds[k.GroupKind], nil
}

// add makes a kind one of the publishers.
func (p *publishers) add(gk object.GroupKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[gk] = true
}

// has reports whether a kind is among the publishers.
func (p *publishers) has(gk object.GroupKind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kinds[gk]
}
