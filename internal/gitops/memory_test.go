package gitops

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"sigs.k8s.io/yaml"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// memory is a management cluster whose owners are in memory.
type memory struct {
	owners map[object.GroupKind][][]byte
	// refused are the kinds that cannot be listed.
	refused []object.GroupKind
}

func (m *memory) List(_ context.Context, k kube.Kind, _ kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	if slices.Contains(m.refused, k.GroupKind) {
		return kube.ListResult{}, errors.New("forbidden")
	}
	for _, raw := range m.owners[k.GroupKind] {
		if err := fn(raw); err != nil {
			return kube.ListResult{}, err
		}
	}
	return kube.ListResult{}, nil
}

// kinds are those of all owners, as a management cluster with every tool serves them.
func (m *memory) kinds() (kinds []kube.Kind) {
	for _, row := range kindRows {
		_, has := m.owners[row.GroupKind]
		if row.listed() && (has || slices.Contains(m.refused, row.GroupKind)) {
			kinds = append(kinds, kube.Kind{GroupKind: row.GroupKind, Namespaced: true})
		}
	}
	return kinds
}

// documents reads YAML documents as JSON, with the ref of each.
func documents(t *testing.T, text string) (refs []object.Ref, raws [][]byte) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		o := gjson.ParseBytes(raw)
		group, _, grouped := strings.Cut(o.Get("apiVersion").String(), "/")
		if !grouped {
			group = ""
		}
		refs = append(refs, object.Ref{Group: group, Kind: o.Get("kind").String(),
			Namespace: o.Get("metadata.namespace").String(), Name: o.Get("metadata.name").String()})
		raws = append(raws, raw)
	}
	return refs, raws
}

// trial is a search among objects of unit "team-a/web" on a management cluster with owners.
func trial(t *testing.T, objects, owners string, refused ...object.GroupKind) Result {
	t.Helper()
	m := &memory{owners: map[object.GroupKind][][]byte{}, refused: refused}
	if owners != "" {
		refs, raws := documents(t, owners)
		for i, ref := range refs {
			m.owners[ref.GroupKind()] = append(m.owners[ref.GroupKind()], raws[i])
		}
	}
	s := NewSearch()
	refs, raws := documents(t, objects)
	for i, ref := range refs {
		unit := "team-a/web"
		if ref.Kind == "ClusterClass" {
			unit = ""
		}
		s.Add(ref, unit, raws[i])
	}
	r, err := s.Owners(t.Context(), m, m.kinds())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// texts gives findings in a short form: severity, code and the hint.
func texts(findings []object.Finding) []string {
	out := make([]string, 0, len(findings))
	for _, f := range findings {
		out = append(out, f.Severity.String()+" "+string(f.Code)+": "+f.Hint)
	}
	return out
}

// ownerTexts gives the owners that a search found, with their states and parents.
func ownerTexts(r Result) []string {
	var out []string
	for _, o := range r.Owners {
		text := o.Name() + " " + string(o.State)
		for _, p := range o.Parents {
			text += " < " + p.Name() + " " + string(p.State)
		}
		out = append(out, text)
	}
	return out
}
