package snapshot

import (
	"context"
	"errors"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// CaptureInMemory captures a source into memory and stores nothing: a plan is made from it while
// the source is reachable. Of the options it needs Source, SourceName, SourceUID, Kubernetes,
// Providers, Scope and WithoutRelated. It changes nothing and may run any number of times.
func CaptureInMemory(ctx context.Context, o Options) (*Snapshot, *Contents, error) {
	o.setDefaults()
	for try := 1; ; try++ {
		s, c, err := captureInMemoryOnce(ctx, o)
		// ErrHistory: an object of a kind that cannot be read as of the cut changed meanwhile.
		again := errors.Is(err, kube.ErrExpired) || errors.Is(err, capture.ErrHistory)
		if err == nil || !again || try == captureTries {
			return s, c, err
		}
	}
}

func captureInMemoryOnce(ctx context.Context, o Options) (*Snapshot, *Contents, error) {
	began := o.Now().UTC()
	contents, err := newContents(nil)
	if err != nil {
		return nil, nil, err
	}
	kinds, err := o.Source.Kinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	cut, err := capture.Run(ctx, o.captureOptions(kinds, nil), contentsSink{contents})
	if err != nil {
		return nil, nil, err
	}
	if err := contents.complete(ctx, o.Source, cut); err != nil {
		return nil, nil, err
	}
	providers, err := o.Providers(ctx, kinds)
	if err != nil {
		return nil, nil, err
	}
	return &Snapshot{Envelope: newEnvelope(o, cut, began),
		About: o.about(cut, providers), Graph: cut.Graph,
		Omitted: cut.Omitted}, contents, nil
}

// both passes what is captured to the packs of a snapshot and to memory.
type both struct {
	*objectWriter
	contents contentsSink
}

var _ capture.Sink = (*both)(nil)

// Prefetch implements capture.Sink.
func (b *both) Prefetch(n *graph.Node, raw []byte) error {
	if err := b.contents.Prefetch(n, raw); err != nil {
		return err
	}
	return b.objectWriter.Prefetch(n, raw)
}

// Object implements capture.Sink.
func (b *both) Object(n *graph.Node, raw []byte) error {
	if err := b.contents.Object(n, raw); err != nil {
		return err
	}
	return b.objectWriter.Object(n, raw)
}

// contentsSink puts captured objects into Contents.
type contentsSink struct{ contents *Contents }

var _ capture.Sink = contentsSink{}

// Prefetch implements capture.Sink.
func (s contentsSink) Prefetch(n *graph.Node, raw []byte) error {
	if raw == nil {
		return nil
	}
	_, err := s.contents.put(n.Ref, raw)
	return err
}

// OnInitialList implements capture.Sink.
func (s contentsSink) OnInitialList(context.Context, *capture.Cut) (func(context.Context) error,
	error) {
	return nil, nil
}

// Object implements capture.Sink.
func (s contentsSink) Object(n *graph.Node, raw []byte) error { return s.Prefetch(n, raw) }

// complete fetches the objects of a cut that the initial list did not give: they were not selected
// then.
func (c *Contents) complete(ctx context.Context, source capture.Source, cut *capture.Cut) error {
	defer c.rest()
	var missing []*graph.Node
	for _, n := range cut.Graph.Nodes {
		if !c.has(n.Ref) {
			missing = append(missing, n)
		}
	}
	return capture.Fetch(ctx, source, cut, missing, func(n *graph.Node, raw []byte) error {
		_, err := c.put(n.Ref, raw)
		return err
	})
}
