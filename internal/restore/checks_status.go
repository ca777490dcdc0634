package restore

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// checkStatus validates the status of every object that the restore creates against the schema of
// the target. A create drops the status, so that no dry-run of it finds a status that the target
// will refuse: the unit would fail in the middle, when its objects are created.
func checkStatus(ctx context.Context, p *planner) error {
	nodes := map[object.GroupKind][]*graph.Node{}
	for n := range p.active {
		k, served := p.kinds[n.GroupKind()]
		if served && k.Status && k.Group != "" && (p.existing[n.Ref] == "" || p.left[n]) {
			nodes[n.GroupKind()] = append(nodes[n.GroupKind()], n)
		}
	}
	about := refusalsOf(nodes)
	g, ctx := task.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0)) // decoding and validating; a kind has one request
	for gk, of := range nodes {
		g.Go(func() error {
			schema, err := p.Schemas.Read(ctx, p.Reader, p.kinds[gk])
			if err != nil || schema == nil {
				return err
			}
			for _, n := range of {
				if err := p.checkStatusOf(n, schema, about[n]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	reported := map[*refusals]bool{}
	for n, about := range about {
		if reported[about] {
			continue
		}
		reported[about] = true
		if n.Unit != "" {
			p.addAll(about.findings(n.Unit)...)
			continue
		}
		for _, f := range about.findings("") {
			p.add(n, f)
		}
	}
	return nil
}

// refusalsOf returns one collection for all nodes of a unit, and one for each shared node.
func refusalsOf(nodes map[object.GroupKind][]*graph.Node) map[*graph.Node]*refusals {
	units, all := map[string]*refusals{}, map[*graph.Node]*refusals{}
	for _, of := range nodes {
		for _, n := range of {
			if n.Unit != "" && units[n.Unit] == nil {
				units[n.Unit] = &refusals{}
			}
			if all[n] = units[n.Unit]; n.Unit == "" {
				all[n] = &refusals{}
			}
		}
	}
	return all
}

// checkStatusOf validates the status of one object as the restore will write it. Verify compares
// the stored status with that of the snapshot, so that a field without a place in the schema is
// judged here as it will be there.
func (p *planner) checkStatusOf(n *graph.Node, schema *kube.StatusSchema, about *refusals) error {
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil {
		return err
	}
	text := gjson.GetBytes(raw, "status")
	if !text.IsObject() {
		return nil
	}
	body := map[string]any{}
	if err := json.Unmarshal([]byte(text.Raw), &body); err != nil {
		return fmt.Errorf("decode the status of %s: invalid JSON", n.Ref)
	}
	want := &unstructured.Unstructured{Object: map[string]any{"status": body}}
	want.SetGeneration(gjson.GetBytes(raw, "metadata.generation").Int())
	created := &unstructured.Unstructured{Object: map[string]any{}}
	created.SetGeneration(1)
	stored := withStatus(created, want)
	status, _ := stored.Object["status"].(map[string]any)
	if invalid := schema.Check(status); len(invalid) > 0 {
		about.refuse(object.CodeStatusInvalid, n.Ref, shortened(invalid))
		return nil
	}
	row := p.rows().Row(n.GroupKind())
	atWork := row.Pause.Order() == 0 && row.Pause.AtWork(false)
	if row.PerManagementCluster || row.StatusWhilePaused || atWork {
		return nil // its controllers write the status again before verify
	}
	s := p.standard()
	c := equality.Compare(s.rows, map[string]any{"status": body},
		map[string]any{"status": status}, equality.Values)
	var d deviation
	d.accepted, d.lost = split(c.Lost, func(path string) bool {
		return s.accepts(n.GroupKind(), path)
	})
	if is, ok := kube.FindKind(p.Kinds, n.GroupKind()); ok && is.Version != n.Version {
		d.converted, d.lost = d.lost, nil
	}
	about.addAnswer(n.Ref, answer{deviation: d})
	return nil
}
