package restore

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
)

// withCredentials is a management cluster whose one workload cluster has credentials, and the
// infrastructure of a site. The snapshot is of the middle of a move: the Cluster is paused by it.
func withCredentials(t *testing.T) *memory {
	t.Helper()
	owner := `"ownerReferences":[{"kind":"Cluster","name":"w"}]`
	return newMemory(t, "source", `{"kind":"Namespace","metadata":{"name":"one"}}`,
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"w"},"spec":{"paused":false}}`,
		`{"kind":"DevCluster","metadata":{"namespace":"one","name":"w",`+owner+`,
			"labels":{"cluster.x-k8s.io/cluster-name":"w"}},"spec":{"region":"old","port":6443},
			"status":{"ready":true}}`,
		`{"kind":"Secret","metadata":{"namespace":"one","name":"w-cloud",`+owner+`},
			"data":{"password":"b2xk"}}`)
}

// differs is what differs by design on the target of withCredentials. The password is in no plan.
const differs = `version: v1
resourceModifierRules:
- conditions: {groupResource: secrets, resourceNameRegex: -cloud$}
  mergePatches: [{patchData: "stringData: {password: correct-horse}"}]
- conditions:
    groupResource: dev*.infrastructure.cluster.x-k8s.io
    matches: [{path: /spec/region, value: old}]
  patches: [{operation: replace, path: /spec/region, value: new-region}]
`

func modifiers(t *testing.T, text string) *modify.Document {
	t.Helper()
	d, err := modify.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (m *memory) text(t *testing.T, ref string, path ...string) string {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := object.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	u := m.objects[r]
	if u == nil {
		return "missing"
	}
	text, _, _ := unstructured.NestedString(u.Object, path...)
	return text
}

const (
	secretOne     = "Secret/one/w-cloud"
	devClusterOne = "DevCluster.infrastructure.cluster.x-k8s.io/one/w"
)

// checkModified asserts that the target has what differs by design.
func checkModified(t *testing.T, target *memory) {
	t.Helper()
	if got := target.text(t, secretOne, "data", "password"); got != "Y29ycmVjdC1ob3JzZQ==" {
		t.Errorf("the password is %s", got)
	}
	if got := target.text(t, devClusterOne, "spec", "region"); got != "new-region" {
		t.Errorf("the region is %s", got)
	}
}

func ofCode(p *Plan, code object.Code) (texts []string) {
	for _, f := range p.Findings {
		if f.Code == code {
			texts = append(texts, f.Severity.String()+" "+f.Ref.String()+": "+f.Message)
		}
	}
	return texts
}

// TestARestoreGoesByTheModifiedObjects: it creates them, verifies them, and finds them equal when
// it is run again. Without the modifiers they are others.
func TestARestoreGoesByTheModifiedObjects(t *testing.T) {
	x := newTrial(t, withCredentials(t), newMemory(t, "target"))
	x.modifiers = modifiers(t, differs)
	if failures, err := x.run(t); err != nil {
		t.Fatal(err, failures)
	}
	checkModified(t, x.target)
	if x.released(t) != "one/w" {
		t.Error("nothing is released")
	}
	if diff := cmp.Diff([]string{
		"info " + devClusterOne + ": the resource modifiers change spec.region",
		"info " + secretOne + ": the resource modifiers change data.password",
	}, ofCode(x.plan, object.CodeModified)); diff != "" {
		t.Error(diff)
	}
	paths := map[string][]string{}
	for _, o := range x.plan.Units[0].Objects {
		if len(o.Modified) > 0 {
			paths[o.Ref.String()] = o.Modified
		}
	}
	if diff := cmp.Diff(map[string][]string{secretOne: {"data.password"},
		devClusterOne: {"spec.region"}}, paths); diff != "" {
		t.Error(diff)
	}
	text, err := json.Marshal(x.plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"correct-horse", "Y29ycmVjdC1ob3JzZQ==", "new-region"} {
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("the plan has %s", value)
		}
	}
	if failures, err := x.again(t); err != nil {
		t.Fatal(err, failures)
	}
	if create, _, _, blocked := x.plan.Counts(); create > 0 || blocked > 0 {
		t.Errorf("run again: %d to create, %d blocked", create, blocked)
	}
	x.modifiers = nil
	x.load(t)
	if different := ofCode(x.makePlan(t), object.CodeExistsDifferent); len(different) != 2 {
		t.Errorf("without the modifiers: %v", different)
	}
}

// TestTheDigestOfAPlanFollowsItsModifiers: also where they change the same paths.
func TestTheDigestOfAPlanFollowsItsModifiers(t *testing.T) {
	x := newTrial(t, withCredentials(t), newMemory(t, "target"))
	digests := map[string]bool{x.makePlan(t).Digest(): true}
	for _, text := range []string{differs, strings.Replace(differs, "correct-horse", "battery", 1)} {
		x.modifiers = modifiers(t, text)
		digests[x.makePlan(t).Digest()] = true
	}
	if len(digests) != 3 {
		t.Errorf("%d digests", len(digests))
	}
	if d := x.makePlan(t).Digest(); !digests[d] {
		t.Error("the same modifiers have another digest")
	}
}

// TestAResumeNeedsTheModifiersOfItsPlan: they may hold credentials and are not stored.
func TestAResumeNeedsTheModifiersOfItsPlan(t *testing.T) {
	x := newTrial(t, withCredentials(t), newMemory(t, "target"))
	x.modifiers = modifiers(t, differs)
	h := &lostHost{memory: x.target, writes: 2}
	x.writer = h
	if _, err := x.run(t); err == nil {
		t.Fatal("the host was not lost")
	}
	x.writer = nil
	x.load(t)
	for name, test := range map[string]struct {
		text string
		want modify.MismatchError
	}{
		"none":   {"", modify.MismatchError{Missing: true}},
		"others": {strings.Replace(differs, "correct-horse", "battery", 1), modify.MismatchError{}},
	} {
		x.modifiers = modifiers(t, test.text)
		created := len(x.target.created)
		_, err := x.run(t)
		if e, ok := errors.AsType[*modify.MismatchError](err); !ok || *e != test.want ||
			len(x.target.created) != created {
			t.Errorf("%s: %v, and %d objects were created", name, err, len(x.target.created)-created)
		}
	}
	x.modifiers = modifiers(t, differs)
	if failures, err := x.run(t); err != nil {
		t.Fatal(err, failures)
	}
	checkModified(t, x.target)
}

// TestACatalogHasNoValuesOfModifiers: neither in its plans nor in its history (invariant I6).
func TestACatalogHasNoValuesOfModifiers(t *testing.T) {
	x := newTrial(t, withCredentials(t), newMemory(t, "target"))
	x.modifiers = modifiers(t, differs)
	plan := x.makePlan(t)
	op, err := x.catalog.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = x.catalog.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Admit(t.Context(), x.catalog, x.catalog.Journal(op.ID, catalog.JournalOptions{}), "",
		"", plan); err != nil {
		t.Fatal(err)
	}
	text, err := x.catalog.Plan(t.Context(), op.ID)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := json.Marshal(plan); err != nil || !bytes.Equal(bytes.TrimSpace(text), want) {
		t.Errorf("the stored plan is not the plan: %v\n%s\n%s", err, text, want)
	}
	if !bytes.Contains(text, []byte(plan.Spec.Modifiers)) || plan.Spec.Modifiers == "" {
		t.Error("the plan has no digest of the modifiers")
	}
	for e, err := range x.catalog.Events(t.Context(), op.ID, 0) {
		event, jsonErr := json.Marshal(e)
		if err != nil || jsonErr != nil {
			t.Fatal(err, jsonErr)
		}
		text = append(text, event...)
	}
	if !bytes.Contains(text, []byte("data.password")) {
		t.Error("the history does not say what is modified")
	}
	for _, value := range []string{"correct-horse", "Y29ycmVjdC1ob3JzZQ==", "new-region"} {
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("the catalog has %s", value)
		}
	}
}

// TestARuleThatFailsBlocksEverything: all other checks are made all the same.
func TestARuleThatFailsBlocksEverything(t *testing.T) {
	for name, test := range map[string]struct{ rule, want string }{
		"protected": {"mergePatches: [{patchData: 'metadata: {labels: null}'}]",
			"would change metadata.labels.cluster.x-k8s.io/cluster-name"},
		"missing": {"patches: [{operation: remove, path: /spec/none}]", "is not in the object"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t, withCredentials(t), newMemory(t, "target"))
			x.modifiers = modifiers(t, "version: v1\nresourceModifierRules:\n- conditions: {groupResource: "+
				"devclusters.infrastructure.cluster.x-k8s.io}\n  "+test.rule+"\n")
			plan := x.makePlan(t)
			refused := ofCode(plan, object.CodeModifierRefused)
			if !plan.Blocked || len(refused) != 1 || !strings.Contains(refused[0], "rule 1 (line 3): ") ||
				!strings.Contains(refused[0], test.want) ||
				!strings.HasPrefix(refused[0], "error "+devClusterOne) {
				t.Errorf("blocked: %v, %v", plan.Blocked, refused)
			}
			if len(ofCode(plan, object.CodeModifierUnused)) > 0 {
				t.Error("the rule counts as unused")
			}
		})
	}
}

// TestARuleThatMatchesNothingIsReported: its author means something else.
func TestARuleThatMatchesNothingIsReported(t *testing.T) {
	x := newTrial(t, withCredentials(t), newMemory(t, "target"))
	x.modifiers = modifiers(t, differs+`- conditions: {groupResource: devcluster}
  patches: [{operation: remove, path: /spec/none}]
`)
	plan := x.makePlan(t)
	unused := ofCode(plan, object.CodeModifierUnused)
	if plan.Blocked || len(unused) != 1 || !strings.HasPrefix(unused[0], "warning ") ||
		!strings.Contains(unused[0], "rule 3 (line 9)") {
		t.Errorf("blocked: %v, %v", plan.Blocked, unused)
	}
}

// TestNeedsAreThoseOfTheModifiedObject: a rule makes a Machine name another Secret, which neither
// the snapshot nor the target has.
func TestNeedsAreThoseOfTheModifiedObject(t *testing.T) {
	x := newTrial(t, newMemory(t, "source", `{"kind":"Namespace","metadata":{"name":"one"}}`,
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"w"},"spec":{"paused":false}}`,
		`{"kind":"Machine","metadata":{"namespace":"one","name":"m","labels":{"cluster.x-k8s.io/cluster-name":"w"},
			"ownerReferences":[{"kind":"Cluster","name":"w"}]},
			"spec":{"clusterName":"w","bootstrap":{"dataSecretName":"boot"}}}`,
		`{"kind":"Secret","metadata":{"namespace":"one","name":"boot","ownerReferences":[{"kind":"Cluster","name":"w"}]},
			"data":{}}`), newMemory(t, "target"))
	if missing := ofCode(x.makePlan(t), object.CodeNeedMissing); len(missing) > 0 {
		t.Fatal(missing)
	}
	x.modifiers = modifiers(t, `version: v1
resourceModifierRules:
- conditions: {groupResource: machines.cluster.x-k8s.io}
  patches: [{operation: replace, path: /spec/bootstrap/dataSecretName, value: another}]
`)
	missing := ofCode(x.makePlan(t), object.CodeNeedMissing)
	if !slices.ContainsFunc(missing, func(s string) bool { return strings.Contains(s, "Secret/one/another") }) {
		t.Errorf("%v", missing)
	}
}

// TestRulesGoByTheObjectBeforeItsPause: a snapshot of the middle of a move has our pause in it, and
// a plan before the move does not. Both match the same rules.
func TestRulesGoByTheObjectBeforeItsPause(t *testing.T) {
	rules := `version: v1
resourceModifierRules:
- conditions:
    groupResource: clusters.cluster.x-k8s.io
    matches: [{path: /spec/paused, value: "false"}]
  patches: [{operation: add, path: /spec/region, value: new}]
`
	source := newMemory(t, "source", `{"kind":"Namespace","metadata":{"name":"one"}}`,
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"w","annotations":{
			"mgmtd.dev/was-paused":"false","mgmtd.dev/operation":"o/1"}},"spec":{"paused":true}}`)
	x := newTrial(t, source, newMemory(t, "target"))
	x.modifiers = modifiers(t, rules)
	if failures, err := x.run(t); err != nil {
		t.Fatal(err, failures)
	}
	if got := x.target.text(t, clusterOne, "spec", "region"); got != "new" {
		t.Errorf("the region is %q", got)
	}
}

// TestAModifiedIdentityNamesAnotherSecret: the one of the target, which the modifiers name, is what
// the target needs.
func TestAModifiedIdentityNamesAnotherSecret(t *testing.T) {
	source := newMemory(t, "source", append(identified(), credentials("prod", "Opaque", "djE="))...)
	target := newMemory(t, "target", providerSpace, credentials("site-b", "Opaque", "djI="))
	x := newTrial(t, source, target)
	x.modifiers = modifiers(t, `version: v1
resourceModifierRules:
- conditions:
    groupResource: openstackclusteridentities.infrastructure.cluster.x-k8s.io
    namespaces: [n]
  patches: [{operation: replace, path: /spec/secretRef/name, value: site-b}]
`)
	if failures, err := x.run(t); err != nil {
		t.Fatal(err, failures)
	}
	identity := "OpenStackClusterIdentity.infrastructure.cluster.x-k8s.io/prod"
	if got := target.text(t, identity, "spec", "secretRef", "name"); got != "site-b" {
		t.Errorf("the identity names %s", got)
	}
	if failures, err := x.again(t); err != nil {
		t.Fatal(err, failures)
	}
	if create, _, _, _ := x.plan.Counts(); create > 0 {
		t.Errorf("run again: %d to create: %v", create, x.plan.Findings)
	}
}
