package shard

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mgmtd/mgmtd/internal/graph"
)

const shardObject = `{"kind":"Secret","namespace":"ns","name":"s","version":"v1","uid":"u","sha256":"aa","size":5,"pack":"packs/x","needs":[{"kind":"Secret","name":"t","field":"spec.x"}]}`

// TestDecodeReadsWhatEncodingJSONWrites, and skips fields that a later version adds.
func TestDecodeReadsWhatEncodingJSONWrites(t *testing.T) {
	for _, text := range []string{
		`{"objects":null}`, `{"objects":[]}`, `{"unit":"ns/w","objects":[` + shardObject + `]}`,
		`{"namespace":"ns","later":{"a":[1]},"objects":[` + shardObject + `,` + shardObject + `]}`,
		`{"about":{"kubernetesVersion":"v1.36.3","kinds":[{"group":"g","kind":"K","version":"v1","resource":"ks","namespaced":true,"served":["v1"],"generation":3}],"providers":null},"objects":null}`,
	} {
		var want Shard
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got, err := Decode([]byte(text), NewBudget(2))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(),
			cmpopts.IgnoreUnexported(graph.Node{})); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
}

func TestDecodeRefusesMalformedShards(t *testing.T) {
	many := func(value string) string { return strings.Repeat(value+",", 1000) + value }
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":               {``, "EOF"},
		"a list":                {`[]`, "where { has to be"},
		"an end too early":      {`{"objects":[` + shardObject, "EOF"},
		"text after the end":    {`{"objects":[]}{}`, "text after its end"},
		"objects that are text": {`{"objects":"x"}`, "where a list has to be"},
		"no object":             {`{"objects":[null]}`, "object 0 is incomplete"},
		"an empty object": {`{"objects":[` + shardObject + `,{"later":"` + strings.Repeat("x", 40) +
			`"}]}`, "object 1 is incomplete"},
		"too many objects": {`{"objects":[` + many(shardObject) + `]}`,
			"more objects than the 2 that the envelope counts"},
		"many empty objects": {`{"objects":[` + many(`{}`) + `]}`, "more objects than fit into it"},
		"many empty needs": {`{"objects":[` + strings.Replace(shardObject, `"needs":[`, `"needs":[`+
			many(`{}`)+`,`, 1) + `]}`, "more objects than fit into it"},
	} {
		if _, err := Decode([]byte(tt.text), NewBudget(2)); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
