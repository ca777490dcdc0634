package move

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// objects are the contents of the source of a check.
type objects map[object.Ref]string

func (o objects) Bytes(r object.Ref) ([]byte, error) {
	if o[r] == "" {
		return nil, fmt.Errorf("no %s", r)
	}
	return []byte(o[r]), nil
}

func (objects) Drop(object.Ref) {}

// sourceOf returns a checker of a source with these objects, all of the unit ns/w. A namespace and
// a version v1beta2 are filled in.
func sourceOf(t *testing.T, jsons ...string) *checker {
	t.Helper()
	c := &checker{locks: map[string]string{}, ids: map[string]string{}}
	contents := objects{}
	for _, text := range jsons {
		o := gjson.Parse(text)
		group, _, custom := strings.Cut(o.Get("apiVersion").String(), "/")
		if !custom {
			group = ""
		}
		if !gjson.Valid(text) || o.Get("kind").String() == "" {
			t.Fatalf("no object: %s", text)
		}
		n := &graph.Node{Ref: object.Ref{Group: group, Kind: o.Get("kind").String(), Namespace: "ns",
			Name: o.Get("metadata.name").String()}, UID: o.Get("metadata.uid").String(), Unit: "ns/w"}
		for _, field := range []string{"spec.infrastructureRef", "spec.controlPlaneRef"} {
			if ref := o.Get(field); ref.Exists() {
				n.Needs = append(n.Needs, graph.Need{Field: field, Ref: object.Ref{
					Group: ref.Get("apiGroup").String(), Kind: ref.Get("kind").String(), Namespace: "ns",
					Name: ref.Get("name").String()}})
			}
		}
		for _, owner := range o.Get("metadata.ownerReferences").Array() {
			of, _, _ := strings.Cut(owner.Get("apiVersion").String(), "/")
			n.Owners = append(n.Owners, graph.Owner{UID: owner.Get("uid").String(), Ref: object.Ref{
				Group: of, Kind: owner.Get("kind").String(), Namespace: "ns",
				Name: owner.Get("name").String()}})
		}
		contents[n.Ref] = text
		c.nodes = append(c.nodes, n)
	}
	c.contents = contents
	return c
}

// core returns an object of Cluster API core; fields are its JSON without the braces.
func core(kind, name, fields string) string {
	return anObject("cluster.x-k8s.io/v1beta2", kind, name, fields)
}

func anObject(apiVersion, kind, name, fields string) string {
	text := `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `"`
	if !strings.Contains(fields, `"metadata"`) {
		text += `,"metadata":{"name":"` + name + `"}`
	}
	if fields != "" {
		text += "," + fields
	}
	return text + "}"
}

// found runs one check and returns the code, the severity and the message of its findings.
func found(t *testing.T, c *checker, check func(context.Context, *checker) error) []string {
	t.Helper()
	if err := check(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range c.findings {
		if f.Hint == "" || f.Unit != "ns/w" || f.Ref.Name == "" {
			t.Errorf("a finding lacks its hint, its unit or its object: %+v", f)
		}
		if d, ok := object.Define(f.Code); !ok || d.Meaning == "" {
			t.Errorf("code %s is not in the registry", f.Code)
		}
		out = append(out, fmt.Sprintf("%s %s: %s", f.Severity, f.Code, f.Message))
	}
	return out
}

// checkFound compares the findings of a check with the beginnings that they should have.
func checkFound(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d findings, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("finding %q, want %q", got[i], want[i])
		}
	}
}
