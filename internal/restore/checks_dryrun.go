package restore

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// checkDryRun sends every object that the restore will create to the target, as a dry-run: a
// policy, a webhook, stricter validation or a webhook that is down would else end the restore in
// the middle. What needs a namespace or a class that is not there yet is left to the run.
func checkDryRun(ctx context.Context, p *planner) error {
	seen := map[string]*refusals{} // by unit
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	s := p.standard()
	shared := map[*graph.Node]*refusals{}
	for n := range p.active {
		k, served := p.kinds[n.GroupKind()]
		if !served || p.existing[n.Ref] != "" {
			continue
		}
		if p.Asked[n.Ref] {
			p.checked.Store(n.Ref, true)
			continue
		}
		about := seen[n.Unit]
		if n.Unit == "" {
			about = &refusals{}
			shared[n] = about
		} else if about == nil {
			about = &refusals{}
			seen[n.Unit] = about
		}
		if why := p.unready(n); why != "" {
			about.add(object.CodeNotChecked, n.Ref, []string{why})
			continue
		}
		k.Version = n.Version
		g.Go(func() error {
			body, err := decodeObject(p.rows(), p.Contents, n.Ref)
			if err != nil {
				return err
			}
			a, err := s.ask(gctx, p.rows(), k, body)
			if err != nil {
				return fmt.Errorf("%s: %w", n.Ref, err)
			}
			known, err := s.rotate(gctx, p.rows(), &a, body, n.Ref,
				func() []copyOf { return p.copies(n) })
			if err != nil {
				return fmt.Errorf("%s: %w", n.Ref, err)
			}
			about.addAnswer(n.Ref, a)
			if a.refusal == "" && known {
				p.checked.Store(n.Ref, true)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for unit, about := range seen {
		p.addAll(about.findings(unit)...)
	}
	for n, about := range shared {
		for _, f := range about.findings("") {
			p.add(n, f) // an error blocks the units that need it
		}
	}
	return nil
}

// copies returns the objects of the users of a shared node that may have been made from it.
func (p *planner) copies(shared *graph.Node) []copyOf {
	var copies []copyOf
	for n := range p.active {
		gk := n.GroupKind()
		k, served := p.kinds[gk]
		if !served || !slices.Contains(p.users[shared], n.Unit) || gk != shared.GroupKind() &&
			len(p.rows().Row(gk).Compared) == 0 {
			continue
		}
		k.Version = n.Version
		copies = append(copies, copyOf{k, func() (*unstructured.Unstructured, error) {
			return decodeObject(p.rows(), p.Contents, n.Ref)
		}})
	}
	return copies
}

// unready says why the target cannot answer about an object yet; "" when it can.
func (p *planner) unready(n *graph.Node) string {
	namespace := object.Ref{Kind: "Namespace", Name: n.Namespace}
	if n.Namespace != "" && p.existing[namespace] == "" {
		return "its namespace is not there yet"
	}
	for _, need := range n.Needs {
		if p.rows().Row(need.GroupKind()).ReconciledFirst && p.existing[need.Ref] == "" {
			return "its class is not there yet"
		}
	}
	return ""
}
