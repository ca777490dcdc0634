package capi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mgmtd/mgmtd/internal/object"
)

func TestEachFormOfAReferenceNamesItsObjects(t *testing.T) {
	thing := object.GroupKind{Group: "example.org", Kind: "Thing"}
	const head = `{"metadata":{"name":"a","namespace":"ns","annotations":{"example.org/at":"other/b",
		"example.org/name":"c"}},`
	for _, tt := range []struct {
		name       string
		ref        Reference
		rest       string
		controller string
		want       []string
	}{
		{"by type", Reference{Path: "spec.id", To: Secret, Types: map[string]object.GroupKind{
			"Thing": thing}}, `"spec":{"id":{"type":"Thing","name":"t"}}}`, "",
			[]string{"Thing.example.org/ns/t"}},
		{"without a type", Reference{Path: "spec.id", To: Secret, Types: map[string]object.GroupKind{
			"Thing": thing}}, `"spec":{"id":{"name":"t"}}}`, "", []string{"Secret/ns/t"}},
		{"by a type that is not known", Reference{Path: "spec.id", To: Secret,
			Types: map[string]object.GroupKind{"Thing": thing}},
			`"spec":{"id":{"type":"Other","name":"t"}}}`, "", nil},
		{"a type that is no type of a reference", Reference{Path: "spec.id", To: Secret},
			`"spec":{"id":{"type":"Opaque","name":"t"}}}`, "", []string{"Secret/ns/t"}},
		{"a kind without a group", Reference{Path: "spec.id", To: object.GroupKind{Group: "example.org"}},
			`"spec":{"id":{"kind":"Thing","name":"t"}}}`, "", []string{"Thing.example.org/ns/t"}},
		{"a Secret without a group", Reference{Path: "spec.id", To: thing},
			`"spec":{"id":{"kind":"Secret","name":"t"}}}`, "", []string{"Secret/ns/t"}},
		{"a group of its own", Reference{Path: "spec.id", To: thing},
			`"spec":{"id":{"group":"other.org","kind":"Thing","name":"t"}}}`, "",
			[]string{"Thing.other.org/ns/t"}},
		{"in the namespace of the controllers", Reference{Path: "spec.name", To: Secret,
			Controller: "default-system"}, `"spec":{"name":"t"}}`, "real-system",
			[]string{"Secret/real-system/t"}},
		{"in the default one of these", Reference{Path: "spec.name", To: Secret,
			Controller: "default-system"}, `"spec":{"name":"t"}}`, "",
			[]string{"Secret/default-system/t"}},
		{"an object in the namespace of the controllers", Reference{Path: "spec.ref", To: Secret,
			Controller: "default-system"}, `"spec":{"ref":{"name":"t"}}}`, "",
			[]string{"Secret/default-system/t"}},
		{"the annotation of a qualified name", Reference{Path: "metadata.annotations[example.org/at]",
			To: thing, Qualified: true}, `"spec":{}}`, "", []string{"Thing.example.org/other/b"}},
		{"the annotation of a name", Reference{Path: "metadata.annotations[example.org/name]",
			To: Secret}, `"spec":{}}`, "", []string{"Secret/ns/c"}},
		{"a name that is not qualified", Reference{Path: "metadata.annotations[example.org/name]",
			To: thing, Qualified: true}, `"spec":{}}`, "", nil},
		{"an annotation of an embedded object", Reference{To: Secret,
			Path: "spec.list.#.metadata.annotations[example.org/name]"},
			`"spec":{"list":[{"metadata":{"annotations":{"example.org/name":"d"}}},{}]}}`, "",
			[]string{"Secret/ns/d"}},
		{"its own name", Reference{Path: "metadata.name", To: thing}, `"spec":{}}`, "",
			[]string{"Thing.example.org/ns/a"}},
		{"its own name with a suffix", Reference{Path: "metadata.name", Suffix: "-key", To: Secret},
			`"spec":{}}`, "", []string{"Secret/ns/a-key"}},
		{"a fixed name", Reference{Name: "fixed", To: Secret}, `"spec":{}}`, "",
			[]string{"Secret/ns/fixed"}},
		{"of the status", Reference{Path: "status.ref", To: thing}, `"status":{"ref":{"name":"s"}}}`, "",
			[]string{"Thing.example.org/ns/s"}},
		{"of another type of JSON", Reference{Path: "spec.id", To: thing}, `"spec":{"id":7}}`, "", nil},
	} {
		if err := tt.ref.validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got []string
		for _, ref := range tt.ref.In(fieldsOf([]byte(head+tt.rest), tt.controller),
			func(object.GroupKind) bool { return true }) {
			got = append(got, ref.String())
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestReferencesThatCannotBeAreRefused(t *testing.T) {
	thing := object.GroupKind{Group: "example.org", Kind: "Thing"}
	for name, ref := range map[string]Reference{
		"neither a path nor a name":    {To: thing},
		"a path and a name":            {Path: "spec.a", Name: "b", To: thing},
		"a label":                      {Path: "metadata.labels.a", To: thing},
		"all annotations":              {Path: "metadata.annotations", To: thing},
		"an annotation in the middle":  {Path: "spec.a[b].c", To: thing},
		"a query":                      {Path: `spec.a.#(b=="c").d`, To: thing},
		"its own name without a kind":  {Path: "metadata.name"},
		"a suffix without a kind":      {Path: "spec.a", Suffix: "-b"},
		"controllers without a kind":   {Path: "spec.a", Controller: "ns"},
		"two rules for the namespace":  {Path: "spec.a", To: thing, Controller: "ns", Qualified: true},
		"a type without a kind":        {Path: "spec.a", Types: map[string]object.GroupKind{"T": {}}},
		"an owner that comes back":     {Path: "spec.a", To: thing, Back: true, SoftOwner: true},
		"a namespace that is no field": {Path: "spec.a", To: thing, Namespace: "metadata.name"},
		"a qualified name after a dot": {Path: "spec.a", To: thing, AfterDot: true, Qualified: true},
		"a required object that may be absent": {Path: "spec.a", To: thing, Required: true,
			Optional: true},
		"a required object that needs this one": {Path: "spec.a", To: thing, Required: true, Back: true},
		"an exception without a rule":           {Path: "spec.a", To: thing, Unless: "status.a"},
		"a qualified name without a kind":       {Path: "spec.a", Qualified: true},
	} {
		if err := ref.validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestAnObjectWithoutAnExceptionNeedsItsKeys: an operator who writes the configuration of a Talos
// machine has its keys elsewhere.
func TestAnObjectWithoutAnExceptionNeedsItsKeys(t *testing.T) {
	talos := Key{Suffix: "talos", Path: "spec.generateType", NotWith: "none"}
	for raw, want := range map[string]bool{
		`{"spec":{"generateType":"controlplane"}}`: true,
		`{"spec":{"generateType":"none"}}`:         false,
		`{"spec":{}}`:                              true,
	} {
		if got := talos.NeededBy([]byte(raw)); got != want {
			t.Errorf("%s: needed %v", raw, got)
		}
	}
	if !(Key{Suffix: "token"}).NeededBy([]byte(`{}`)) {
		t.Error("a token is not needed")
	}
}

func TestDocumentHasEveryFormOfAReference(t *testing.T) {
	row, err := Document{Group: "example.org", Kind: "Thing", Pause: "own-spec", PauseNeeds: "spec.c",
		StatusWhilePaused: true, ByHand: "scale it to zero", VolatileAnnotations: []string{"e.org/"},
		IgnoresPause: true, Refs: []ReferenceDocument{
			{Path: "spec.a", Kind: "Secret", ControllerNamespace: "ns", Suffix: "-x",
				Required: true},
			{Path: "metadata.annotations[e.org/a]", Kind: "Thing", Qualified: true, Optional: true},
			{Path: "spec.id", Types: map[string]KindDocument{"T": {Group: "e.org", Kind: "T"}}},
			{Name: "fixed", Kind: "Secret", SoftOwner: true}, {Path: "spec.b", Group: "e.org", Back: true},
		}}.Row("a test")
	if err != nil {
		t.Fatal(err)
	}
	want := Row{GroupKind: object.GroupKind{Group: "example.org", Kind: "Thing"}, Source: "a test",
		Pause: PauseByOwnSpec, PauseNeeds: "spec.c", StatusWhilePaused: true, ByHand: "scale it to zero",
		IgnoresPause: true, VolatileAnnotations: []string{"e.org/"}, Refs: []Reference{
			{Path: "spec.a", To: Secret, Controller: "ns", Suffix: "-x", Required: true},
			{Path: "metadata.annotations[e.org/a]", To: object.GroupKind{Kind: "Thing"}, Qualified: true,
				Optional: true},
			{Path: "spec.id", Types: map[string]object.GroupKind{"T": {Group: "e.org", Kind: "T"}}},
			{Name: "fixed", To: Secret, SoftOwner: true},
			{Path: "spec.b", To: object.GroupKind{Group: "e.org"}, Back: true}}}
	if diff := cmp.Diff(want, row, cmp.Comparer(func(a, b Pause) bool {
		return a.String() == b.String()
	})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
