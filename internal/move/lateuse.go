package move

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// lateUsers returns, by unit, which of its objects others in its namespace have come to use since
// its group was made ready: they were its own then, and would be removed below these others. Only
// objects that came since, or have another spec, are read. After a resume, which does not know
// what there was, the namespaces are captured.
func (m *run) lateUsers(ctx context.Context, b *batch, list *versions) (map[string][]string,
	error) {
	if b.around == nil {
		return m.sharedMeanwhile(ctx, b)
	}
	uses := map[string][]string{}
	reader := capture.NewNodeReader(m.Source.Kinds, m.Rows)
	var mu sync.Mutex
	g, ctx := task.WithContext(ctx)
	g.SetLimit(8)
	for _, ref := range list.changed {
		g.Go(func() error {
			user, err := m.readNode(ctx, reader, ref)
			if err != nil || user == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, need := range user.Needs {
				was := b.Source[need.Ref.String()]
				if was.Unit != "" && !need.Back && need.GroupKind() != capi.Cluster {
					uses[was.Unit] = append(uses[was.Unit], fmt.Sprintf("%s, which %s has come to use",
						need.Ref, ref))
				}
			}
			return nil
		})
	}
	return uses, g.Wait()
}

// readNode reads an object of the source as a node; nil when it is gone.
func (m *run) readNode(ctx context.Context, reader *capture.NodeReader, ref object.Ref) (
	*graph.Node, error) {
	live, err := on(ctx, m.Source, ref)
	if err != nil || live == nil {
		return nil, kube.SafeError(ref.GroupKind(), err)
	}
	text, err := json.Marshal(live.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ref, err)
	}
	k, _ := kube.FindKind(m.Source.Kinds, ref.GroupKind())
	return reader.Node(k, text), nil
}

// sharedMeanwhile is lateUsers by a capture.
func (m *run) sharedMeanwhile(ctx context.Context, b *batch) (map[string][]string, error) {
	units := b.units()
	if len(units) == 0 {
		return nil, nil
	}
	v, err := m.captures.of(ctx, time.Now(), m.namespacesOf(units[0], b.Copy.Units...))
	if err != nil {
		return nil, err
	}
	uses := map[string][]string{}
	for _, n := range v.graph.Nodes {
		if was := b.Source[n.Ref.String()]; was.Unit != "" && n.Shared && n.UID == was.UID {
			uses[was.Unit] = append(uses[was.Unit], n.Ref.String()+
				", which others in its namespace have come to use")
		}
	}
	return uses, nil
}
