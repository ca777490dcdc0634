package modify

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// doc makes a document of rules.
func doc(rules string) string { return "version: v1\nresourceModifierRules:\n" + rules }

func parse(t *testing.T, text string) *Document {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// secret is a Secret of a workload cluster, and its resource.
const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"web-cloud","namespace":"team-a",
"uid":"u","resourceVersion":"7","generation":1,"labels":{"cluster.x-k8s.io/cluster-name":"web",
"env":"prod"},"annotations":{"mgmtd.dev/was-paused":"absent","a":"b"},"finalizers":["f"],
"ownerReferences":[{"kind":"Cluster","name":"web"}],"managedFields":[{"manager":"m"}]},
"type":"Opaque","data":{"key":"b2xk","other":"eA=="}}`

const cluster = `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"AWSCluster",
"metadata":{"name":"web","namespace":"team-a","labels":{"cluster.x-k8s.io/cluster-name":"web"},
"annotations":{"cluster.x-k8s.io/paused":"","serviceoperator.azure.com/reconcile-policy":"manage",
"sigs.k8s.io/cluster-api-provider-azure-pre-pause-reconcile-policy":"",
"baremetalhost.metal3.io/paused":""}},
"spec":{"region":"eu-1","paused":false,"clusterName":"web","port":6443,"identityRef":{"kind":"S","name":"a"},
"zones":["a","b"]},"status":{"ready":true}}`

const clusters = "awsclusters.infrastructure.cluster.x-k8s.io"

func TestConditionsDecide(t *testing.T) {
	for name, test := range map[string]struct {
		conditions string
		matches    bool
	}{
		"resource":              {"groupResource: secrets", true},
		"other resource":        {"groupResource: configmaps", false},
		"pattern":               {"groupResource: sec*s", true},
		"a star is one word":    {"groupResource: '*.x-k8s.io'", false},
		"name":                  {"groupResource: secrets, resourceNameRegex: '-cloud$'", true},
		"other name":            {"groupResource: secrets, resourceNameRegex: ^cloud", false},
		"namespace":             {"groupResource: secrets, namespaces: [b, team-a]", true},
		"pattern of namespaces": {"groupResource: secrets, namespaces: ['team-*']", true},
		"other namespace":       {"groupResource: secrets, namespaces: [team]", false},
		"labels":                {"groupResource: secrets, labelSelector: {matchLabels: {env: prod}}", true},
		"other labels":          {"groupResource: secrets, labelSelector: {matchLabels: {env: test}}", false},
		"expression": {"groupResource: secrets, labelSelector: {matchExpressions: [{key: env, " +
			"operator: NotIn, values: [prod]}]}", false},
		"value":         {"groupResource: secrets, matches: [{path: /type, value: Opaque}]", true},
		"other value":   {"groupResource: secrets, matches: [{path: /type, value: other}]", false},
		"missing path":  {"groupResource: secrets, matches: [{path: /data/none, value: x}]", false},
		"both, one not": {"groupResource: secrets, matches: [{path: /type, value: Opaque}, {path: /kind, value: x}]", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, doc("- conditions: {"+test.conditions+"}\n  mergePatches: [{patchData: 'data: {key: bmV3}'}]\n"))
			result, err := d.Apply("secrets", decoded(t, secret))
			if err != nil || (len(result.Rules) == 1) != test.matches || (len(result.Paths) == 1) != test.matches {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

// TestMayMatchGoesByResourceNamespaceAndName: an object without a namespace is in all of them.
func TestMayMatchGoesByResourceNamespaceAndName(t *testing.T) {
	d := parse(t, doc("- conditions: {groupResource: "+clusters+", namespaces: [a], resourceNameRegex: w}\n"+
		"  patches: [{operation: remove, path: /spec/x}]\n"))
	for _, test := range []struct {
		resource, namespace, name string
		may                       bool
	}{
		{clusters, "a", "web", true}, {clusters, "", "web", true}, {clusters, "b", "web", false},
		{clusters, "a", "x", false}, {"awsclusters", "a", "web", false},
	} {
		if d.MayMatch(test.resource, test.namespace, test.name) != test.may {
			t.Errorf("%+v", test)
		}
	}
	if (*Document)(nil).MayMatch(clusters, "a", "web") {
		t.Error("no document matches")
	}
}

func TestPatchesChangeAnObject(t *testing.T) {
	for name, test := range map[string]struct {
		resource, rule string
		paths          []string
		path           []string // of one value, and what it is
		value          any
	}{
		"replace": {clusters, "patches: [{operation: replace, path: /spec/region, value: us-1}]",
			[]string{"spec.region"}, []string{"spec", "region"}, "us-1"},
		"a number": {clusters, "patches: [{operation: replace, path: /spec/port, value: 443}]",
			[]string{"spec.port"}, []string{"spec", "port"}, int64(443)},
		"a number as a text": {clusters, `patches: [{operation: replace, path: /spec/region, value: '"443"'}]`,
			[]string{"spec.region"}, []string{"spec", "region"}, "443"},
		"a boolean": {clusters, "patches: [{operation: add, path: /spec/bastion, value: true}]",
			[]string{"spec.bastion"}, []string{"spec", "bastion"}, true},
		"an object": {clusters, `patches: [{operation: add, path: /spec/identityRef, value: '{"kind":"T","name":"b"}'}]`,
			[]string{"spec.identityRef.kind", "spec.identityRef.name"},
			[]string{"spec", "identityRef", "name"}, "b"},
		"a text with a line end": {clusters, `patches: [{operation: replace, path: /spec/region, value: "a\nb"}]`,
			[]string{"spec.region"}, []string{"spec", "region"}, "a\nb"},
		"remove": {clusters, "patches: [{operation: remove, path: /spec/identityRef}]",
			[]string{"spec.identityRef.kind", "spec.identityRef.name"},
			[]string{"spec", "identityRef"}, nil},
		"an element": {clusters, "patches: [{operation: replace, path: /spec/zones/1, value: c}]",
			[]string{"spec.zones[1]"}, nil, nil},
		"another length": {clusters, "patches: [{operation: add, path: /spec/zones/-, value: c}]",
			[]string{"spec.zones"}, nil, nil},
		"copy": {clusters, "patches: [{operation: copy, from: /spec/region, path: /spec/copy}]",
			[]string{"spec.copy"}, []string{"spec", "copy"}, "eu-1"},
		"move": {clusters, "patches: [{operation: move, from: /spec/region, path: /spec/moved}]",
			[]string{"spec.moved", "spec.region"}, []string{"spec", "moved"}, "eu-1"},
		"a test that passes": {clusters, "patches: [{operation: test, path: /spec/region, value: eu-1}, " +
			"{operation: replace, path: /spec/region, value: x}]", []string{"spec.region"},
			[]string{"spec", "region"}, "x"},
		"a test that fails": {clusters, "patches: [{operation: test, path: /spec/region, value: no}, " +
			"{operation: replace, path: /spec/region, value: x}]", nil, []string{"spec", "region"}, "eu-1"},
		"merge patches in order": {clusters, "mergePatches: [{patchData: 'spec: {region: x, port: null}'}, " +
			"{patchData: '{\"spec\":{\"region\":\"y\"}}'}]", []string{"spec.port", "spec.region"},
			[]string{"spec", "region"}, "y"},
		"a merge patch replaces a list": {clusters, "mergePatches: [{patchData: 'spec: {zones: [c, d]}'}]",
			[]string{"spec.zones[0]", "spec.zones[1]"}, nil, nil},
		"stringData is data": {"secrets", "mergePatches: [{patchData: 'stringData: {key: new}'}]",
			[]string{"data.key"}, []string{"data", "key"}, "bmV3"},
		"labels and annotations": {"secrets", "mergePatches: [{patchData: 'metadata: {labels: {env: null}, annotations: {c: d}}'}]",
			[]string{"metadata.annotations.c", "metadata.labels.env"}, nil, nil},
		"nothing new": {clusters, "mergePatches: [{patchData: 'spec: {region: eu-1}'}]", nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := cluster
			if test.resource == "secrets" {
				text = secret
			}
			before := decoded(t, text)
			d := parse(t, doc("- conditions: {groupResource: "+test.resource+"}\n  "+test.rule+"\n"))
			result, err := d.Apply(test.resource, before)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.paths, result.Paths); diff != "" {
				t.Error(diff)
			}
			var value any = result.Object
			for _, p := range test.path {
				value = value.(map[string]any)[p]
			}
			if test.path != nil && !cmp.Equal(value, test.value) {
				t.Errorf("%v is %v (%T)", test.path, value, value)
			}
			if diff := cmp.Diff(decoded(t, text), before); diff != "" {
				t.Error("the original changed", diff)
			}
		})
	}
}

// TestConditionsGoByTheOriginal: a rule sees what the rules before it changed, but for conditions.
func TestConditionsGoByTheOriginal(t *testing.T) {
	d := parse(t, doc(`- conditions: {groupResource: `+clusters+`}
  patches: [{operation: replace, path: /spec/region, value: x}]
- conditions: {groupResource: `+clusters+`, matches: [{path: /spec/region, value: eu-1}]}
  patches: [{operation: copy, from: /spec/region, path: /spec/copy}]
`))
	result, err := d.Apply(clusters, decoded(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	if spec := result.Object["spec"].(map[string]any); spec["copy"] != "x" || len(result.Rules) != 2 ||
		result.Rules[1] != (Rule{2, 5}) {
		t.Errorf("%+v", result)
	}
}

// TestWhatNoRuleMayChange: each way to change a protected field is an error, whatever the path of
// the patch is, and its text has no values.
func TestWhatNoRuleMayChange(t *testing.T) {
	merge := func(patch string) string { return "mergePatches: [{patchData: '" + patch + "'}]" }
	for name, test := range map[string]struct{ resource, rule, path string }{
		"apiVersion":       {clusters, merge("apiVersion: hunter2"), "apiVersion"},
		"kind":             {clusters, merge("kind: hunter2"), "kind"},
		"name":             {clusters, merge("metadata: {name: hunter2}"), "metadata.name"},
		"namespace":        {clusters, merge("metadata: {namespace: hunter2}"), "metadata.namespace"},
		"uid":              {"secrets", merge("metadata: {uid: hunter2}"), "metadata.uid"},
		"resourceVersion":  {"secrets", merge("metadata: {resourceVersion: null}"), "metadata.resourceVersion"},
		"generation":       {"secrets", merge("metadata: {generation: 2}"), "metadata.generation"},
		"owners":           {"secrets", merge("metadata: {ownerReferences: []}"), "metadata.ownerReferences"},
		"an owner":         {"secrets", "patches: [{operation: replace, path: /metadata/ownerReferences/0/name, value: hunter2}]", "metadata.ownerReferences[0].name"},
		"finalizers":       {"secrets", "patches: [{operation: add, path: /metadata/finalizers/-, value: hunter2}]", "metadata.finalizers"},
		"managedFields":    {"secrets", merge("metadata: {managedFields: null}"), "metadata.managedFields"},
		"status":           {clusters, merge("status: {ready: false}"), "status.ready"},
		"spec.paused":      {clusters, merge("spec: {paused: true}"), "spec.paused"},
		"all of spec":      {clusters, "patches: [{operation: remove, path: /spec}]", "spec."},
		"spec by a text":   {clusters, merge("spec: hunter2"), "spec"},
		"spec.clusterName": {clusters, merge("spec: {clusterName: hunter2}"), "spec.clusterName"},
		"pause":            {clusters, "patches: [{operation: remove, path: /metadata/annotations/cluster.x-k8s.io~1paused}]", "annotations.cluster.x-k8s.io/paused"},
		"policy":           {clusters, merge("metadata: {annotations: {serviceoperator.azure.com/reconcile-policy: skip}}"), "reconcile-policy"},
		"policy of before": {clusters, merge("metadata: {annotations: {sigs.k8s.io/cluster-api-provider-azure-pre-pause-reconcile-policy: x}}"), "pre-pause"},
		"a host's pause":   {clusters, merge("metadata: {annotations: {baremetalhost.metal3.io/paused: null}}"), "baremetalhost.metal3.io/paused"},
		"all annotations":  {clusters, merge("metadata: {annotations: null}"), "metadata.annotations."},
		"our mark":         {"secrets", merge("metadata: {annotations: {mgmtd.dev/was-paused: null}}"), "mgmtd.dev/was-paused"},
		"a mark of ours":   {clusters, merge("metadata: {annotations: {mgmtd.dev/workload-id: hunter2}}"), "mgmtd.dev/workload-id"},
		"our label":        {clusters, merge("metadata: {labels: {mgmtd.dev/x: hunter2}}"), "mgmtd.dev/x"},
		"cluster name":     {clusters, merge("metadata: {labels: {cluster.x-k8s.io/cluster-name: hunter2}}"), "cluster-name"},
		"all labels":       {clusters, "patches: [{operation: remove, path: /metadata/labels}]", "cluster-name"},
		"type of a Secret": {"secrets", merge("type: kubernetes.io/service-account-token"), "type"},
		"by a move":        {clusters, "patches: [{operation: move, from: /spec/paused, path: /spec/x}]", "spec.paused"},
	} {
		t.Run(name, func(t *testing.T) {
			text := cluster
			if test.resource == "secrets" {
				text = secret
			}
			d := parse(t, doc("- conditions: {groupResource: "+test.resource+"}\n  "+test.rule+"\n"))
			_, err := d.Apply(test.resource, decoded(t, text))
			e, ok := errors.AsType[*RuleError](err)
			if !ok || e.Rule != (Rule{1, 3}) || !strings.Contains(e.Why, test.path) ||
				!strings.Contains(e.Why, "no rule may change") || strings.Contains(e.Why, "hunter2") {
				t.Error(err)
			}
		})
	}
}

func TestARuleThatCannotBeApplied(t *testing.T) {
	for name, test := range map[string]struct{ rule, why string }{
		"missing path":    {"patches: [{operation: replace, path: /data/none, value: hunter2}]", "is not in the object"},
		"missing element": {"patches: [{operation: remove, path: /metadata/finalizers/3}]", "is not in the object"},
		"of another type": {"patches: [{operation: add, path: /metadata/finalizers/hunter2, value: x}]", "do not fit"},
		"stringData":      {"mergePatches: [{patchData: 'stringData: {key: 5}'}]", "stringData.key is no text"},
		"no base64":       {"mergePatches: [{patchData: 'data: {key: hunter2!}'}]", "data.key would not be base64"},
		"no data":         {"mergePatches: [{patchData: 'data: {key: {a: hunter2}}'}]", "data.key"},
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, doc("- conditions: {groupResource: secrets}\n  "+test.rule+"\n"))
			_, err := d.Apply("secrets", decoded(t, secret))
			if err == nil || !strings.Contains(err.Error(), test.why) || strings.Contains(err.Error(), "hunter2") {
				t.Error(err)
			}
		})
	}
}

// TestProblemsOfADocument: all of them at once, with lines, and without values.
func TestProblemsOfADocument(t *testing.T) {
	rule := "- conditions: {groupResource: secrets}\n"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"syntax":           {"version: v1\nresourceModifierRules: [hunter2: {\n", []string{"line 2: it is not YAML"}},
		"an anchor":        {doc(rule + "  patches: [{operation: add, path: /a, value: *hunter2}]\n"), []string{"it is not YAML"}},
		"empty":            {"# nothing\n", []string{"it is empty"}},
		"a list":           {"- a\n", []string{"line 1: it is not a mapping"}},
		"two documents":    {"version: v1\n---\nversion: v1\n", []string{"a second document begins"}},
		"version":          {"version: v2\nresourceModifierRules: [" + `{conditions: {groupResource: a}, patches: [{operation: remove, path: /a}]}]`, []string{"version must be v1"}},
		"no rules":         {"version: v1\n", []string{"has no rule"}},
		"an unknown field": {doc(rule + "  mergePatch: [{patchData: hunter2}]\n"), []string{"line 4: the field mergePatch is not known"}},
		"a wrong type":     {doc(rule + "  patches: hunter2\n"), []string{"line 4: got a text, want a list"}},
		"an object as value": {doc(rule + "  patches:\n  - {operation: add, path: /a, value: {b: hunter2}}\n"),
			[]string{"line 5: got a mapping, want a text: quote it"}},
		"a key twice": {doc("- conditions: {groupResource: a, groupResource: b}\n"), []string{"this key is there twice"}},
		"no patches":  {doc(rule), []string{"line 3, rule 1: it needs either patches or mergePatches"}},
		"two kinds": {doc(rule + "  patches: [{operation: remove, path: /a}]\n  mergePatches: [{patchData: 'a: b'}]\n"),
			[]string{"rule 1: it needs either"}},
		"strategic patches": {doc(rule + "  strategicPatches: [{patchData: hunter2}]\n"),
			[]string{"strategicPatches are not supported"}},
		"patchData":          {doc(rule + "  mergePatches: [{patchData: hunter2}]\n"), []string{"mergePatches[0].patchData is no"}},
		"operation":          {doc(rule + "  patches: [{operation: hunter2, path: /a}]\n"), []string{"patches[0].operation must be one of"}},
		"path":               {doc(rule + "  patches: [{operation: remove, path: a}]\n"), []string{"patches[0].path must begin with /"}},
		"from":               {doc(rule + "  patches: [{operation: move, path: /a}]\n"), []string{"patches[0].from must begin with /"}},
		"value":              {doc(rule + "  patches: [{operation: add, path: /a, value: '{hunter2'}]\n"), []string{"patches[0].value is no JSON"}},
		"no resource":        {doc("- patches: [{operation: remove, path: /a}]\n"), []string{"conditions.groupResource is missing"}},
		"braces":             {doc("- conditions: {groupResource: '{a,b}'}\n  patches: [{operation: remove, path: /a}]\n"), []string{"groupResource is no pattern"}},
		"regex":              {doc("- conditions: {groupResource: a, resourceNameRegex: '('}\n  patches: [{operation: remove, path: /a}]\n"), []string{"resourceNameRegex is no regular"}},
		"namespace":          {doc("- conditions: {groupResource: a, namespaces: ['']}\n  patches: [{operation: remove, path: /a}]\n"), []string{"namespaces has an element"}},
		"selector":           {doc("- conditions: {groupResource: a, labelSelector: {matchExpressions: [{key: a, operator: hunter2}]}}\n  patches: [{operation: remove, path: /a}]\n"), []string{"labelSelector is no selector"}},
		"matches":            {doc("- conditions: {groupResource: a, matches: [{path: b, value: hunter2}]}\n  patches: [{operation: remove, path: /a}]\n"), []string{"conditions.matches[0].path must begin"}},
		"several":            {doc(rule + "- conditions: {groupResource: a}\n  patches: [{operation: x, path: y}]\n"), []string{"line 3, rule 1", "line 4, rule 2", "operation", "path"}},
		"too large":          {strings.Repeat("#", MaxSize+1), []string{"more than the 1048576"}},
		"a ConfigMap of two": {"kind: ConfigMap\ndata: {a: b, c: d}\n", []string{"line 1: the data of the ConfigMap must have one key"}},
		"in a ConfigMap": {"apiVersion: v1\nkind: ConfigMap\ndata:\n  rules.yaml: |\n    version: v1\n    resourceModifierRules:\n    - conditions: {}\n      patches: [{operation: remove, path: /a}]\n",
			[]string{"line 7, rule 1: conditions.groupResource is missing"}},
		"an unknown field in a ConfigMap": {"kind: ConfigMap\ndata:\n  a: |\n    version: v1\n    hunter: 2\n",
			[]string{"line 5: the field hunter is not known"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(test.text))
			if _, ok := errors.AsType[*ParseError](err); !ok {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a value is in %v", err)
			}
		})
	}
}

// TestTheDigestFollowsWhatTheDocumentSays: not its layout, not the ConfigMap around it.
func TestTheDigestFollowsWhatTheDocumentSays(t *testing.T) {
	rules := "- conditions: {groupResource: secrets}\n  mergePatches: [{patchData: 'data: {key: bmV3}'}]\n"
	d := parse(t, doc(rules))
	wrapped := "kind: ConfigMap\nmetadata: {name: x}\ndata:\n  a: |\n    # a comment\n    " +
		strings.ReplaceAll(strings.TrimSpace(doc(rules)), "\n", "\n    ") + "\n"
	if d.Digest("t") != parse(t, wrapped).Digest("t") {
		t.Error("the ConfigMap changes the digest")
	}
	if d.Digest("t") == d.Digest("u") {
		t.Error("two targets have one digest")
	}
	if d.Digest("t") == parse(t, doc(strings.Replace(rules, "bmV3", "b2xk", 1))).Digest("t") {
		t.Error("another value has the same digest")
	}
	if none, err := Parse(nil); none != nil || err != nil || none.Digest("t") != "" {
		t.Error(none, err)
	}
}

// FuzzParse: a document never panics, and never changes what no rule may change.
func FuzzParse(f *testing.F) {
	f.Add(doc("- conditions: {groupResource: '*'}\n  patches: [{operation: remove, path: /spec}]\n"))
	f.Add(doc("- conditions: {groupResource: '*'}\n  mergePatches: [{patchData: 'metadata: null'}]\n"))
	f.Add("kind: ConfigMap\ndata:\n  a: |\n    version: v1\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse([]byte(text))
		if err != nil || d == nil {
			return
		}
		for resource, text := range map[string]string{"secrets": secret, clusters: cluster} {
			before := decoded(t, text)
			result, err := d.Apply(resource, before)
			if err != nil {
				continue
			}
			for _, key := range []string{"apiVersion", "kind", "status", "type"} {
				if !cmp.Equal(before[key], result.Object[key]) && (key != "type" || resource == "secrets") {
					t.Errorf("%s changed", key)
				}
			}
			meta, after := before["metadata"].(map[string]any), result.Object["metadata"].(map[string]any)
			for _, key := range []string{"name", "namespace", "uid", "ownerReferences", "finalizers"} {
				if !cmp.Equal(meta[key], after[key]) {
					t.Errorf("metadata.%s changed", key)
				}
			}
		}
	})
}
