package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
)

// modified are the contents of a snapshot as resource modifiers change them for the target. All
// that creates, compares and checks objects of the target reads these. What belongs to the source
// reads the contents below: whether an object may be restored at all, and in a move whether the
// source has changed.
type modified struct {
	Contents
	document *modify.Document
	kinds    []kube.Kind
	rows     *capi.Table
	// refused are the objects to which a rule cannot be applied. The plan is blocked, and goes on
	// checking with what the snapshot has.
	refused map[object.Ref]bool
}

// withModifiers returns c as it is for the target; c itself when there are no modifiers.
func withModifiers(c Contents, d *modify.Document, kinds []kube.Kind, rows *capi.Table) Contents {
	if d == nil {
		return c
	}
	return &modified{Contents: c, document: d, kinds: kinds, rows: rows}
}

// Bytes returns an object as it is for the target. An object that a rule matches has none of our
// marks: the rules go by what it was before an operation paused it.
func (m *modified) Bytes(r object.Ref) ([]byte, error) {
	if m.refused[r] || !m.may(r) {
		return m.Contents.Bytes(r)
	}
	result, err := m.apply(r)
	if err != nil {
		return nil, err
	}
	if len(result.Paths) == 0 {
		return m.Contents.Bytes(r)
	}
	text, err := json.Marshal(result.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r, err)
	}
	return text, nil
}

func (m *modified) may(r object.Ref) bool {
	return m.document.MayMatch(m.resource(r.GroupKind()), r.Namespace, r.Name)
}

// resource returns the name of a kind in conditions; "" when the target does not serve it.
func (m *modified) resource(gk object.GroupKind) string {
	k, ok := kube.FindKind(m.kinds, gk)
	if !ok {
		return ""
	}
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}.String()
}

// apply returns what the modifiers make of an object. The cause of an error may be a
// *modify.RuleError.
func (m *modified) apply(r object.Ref) (modify.Result, error) {
	u, err := decodeObject(m.rows, m.Contents, r)
	if err != nil {
		return modify.Result{}, err
	}
	result, err := m.document.Apply(m.resource(r.GroupKind()), u.Object)
	if err != nil {
		return result, fmt.Errorf("modify %s: %w", r, err)
	}
	return result, nil
}

// CheckModifiers returns a *modify.MismatchError unless a plan was made with these modifiers.
func (p *Plan) CheckModifiers(d *modify.Document) error {
	return d.Check(p.Spec.Modifiers, p.Target.UID)
}

// modify makes Contents those of the target, and reports what the modifiers change. A rule that
// cannot be applied to an object blocks everything: the document is not what its author means.
func (p *planner) modify() error {
	p.original, p.modifiedPaths = p.Contents, map[object.Ref][]string{}
	if p.Modifiers == nil {
		return nil
	}
	m := &modified{Contents: p.Contents, document: p.Modifiers, kinds: p.Kinds, rows: p.rows(),
		refused: map[object.Ref]bool{}}
	used := map[modify.Rule]bool{}
	failed := map[modify.Rule]*refusal{}
	for n := range p.active {
		if !m.may(n.Ref) {
			continue
		}
		result, err := m.apply(n.Ref)
		if wrong, ok := errors.AsType[*modify.RuleError](err); ok {
			m.refused[n.Ref], used[wrong.Rule] = true, true
			if failed[wrong.Rule] == nil {
				failed[wrong.Rule] = &refusal{first: n.Ref, words: wrong.Error()}
			}
			failed[wrong.Rule].objects++
			continue
		}
		if err != nil {
			return err
		}
		for _, r := range result.Rules {
			used[r] = true
		}
		if len(result.Paths) > 0 {
			p.modifiedPaths[n.Ref] = result.Paths
			p.add(n, object.Finding{Severity: object.Info, Code: object.CodeModified,
				Message: "the resource modifiers change " + strings.Join(result.Paths, ", ")})
		}
	}
	p.Contents = m
	p.reportRules(used, failed)
	return nil
}

// reportRules reports the rules that failed, and those that matched nothing.
func (p *planner) reportRules(used map[modify.Rule]bool, failed map[modify.Rule]*refusal) {
	for _, r := range p.Modifiers.Rules() {
		if f := failed[r]; f != nil {
			message := "resource modifiers: " + f.words
			if f.objects > 1 {
				message += fmt.Sprintf(" (and %d objects more)", f.objects-1)
			}
			p.addAll(object.Finding{Severity: object.Error, Code: object.CodeModifierRefused,
				Ref: f.first, Message: message, Hint: "correct the rule, or its conditions, and plan again"})
		}
		if !used[r] && p.Spec.Only == nil { // a part of the selection need not have all
			p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeModifierUnused,
				Message: fmt.Sprintf("resource modifiers: %s matches no object of the selection", r),
				Hint: "compare its conditions with the objects of the plan: groupResource is the plural " +
					"with its group, such as awsclusters.infrastructure.cluster.x-k8s.io"})
		}
	}
}

// needsOf returns what an object names: as it is for the target.
func (p *planner) needsOf(n *graph.Node) ([]graph.Need, error) {
	if len(p.modifiedPaths[n.Ref]) == 0 {
		return n.Needs, nil
	}
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil {
		return nil, err
	}
	k, ok := kube.FindKind(p.Snapshot.About.Kinds, n.GroupKind())
	if !ok {
		return n.Needs, nil
	}
	return capture.NewNodeReader(p.Snapshot.About.Kinds, p.rows()).Node(k, raw).Needs, nil
}
