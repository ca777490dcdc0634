package mgmt

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzList: what the walker gives of a list, one object at a time, is what decoding the whole of it gives.
func FuzzList(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"abc"},"items":[{"metadata":{"name":"a"}}, {"metadata":{"name":"b"}}]}`,
		`{"items":null,"metadata":{"resourceVersion":"1"}}`, `{"items":[],"metadata":{}}`, `{"metadata":{},"items":[{}]`, `{"items":[1]}`, `{"items":{"a":1}}`, `{"items":[{"a":1,"a":2}]}`, `[]`,
		`{"metadata":{"continue":7}}`, `{"items":[{"a":1}],"items":[{"a":2}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var head struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		}
		var items [][]byte
		err := readList(bytes.NewReader(text), &head, func(raw []byte) error {
			if !jsontext.Value(raw).IsValid() || raw[0] != '{' {
				t.Errorf("gave %q, which is no object", raw)
			}
			items = append(items, bytes.Clone(raw))
			return nil
		})
		if err != nil {
			return
		}
		var whole map[string]json.RawMessage
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&whole); err != nil {
			t.Fatalf("took %q: %v", text, err)
		}
		var want []json.RawMessage
		if raw, ok := whole["items"]; ok {
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatalf("took %q: %v", text, err)
			}
		}
		if len(items) != len(want) {
			t.Fatalf("%d objects of %d", len(items), len(want))
		}
		for i := range want {
			if !bytes.Equal(items[i], want[i]) {
				t.Errorf("gave %q for %q", items[i], want[i])
			}
		}
	})
}

func FuzzRef(f *testing.F) {
	for _, s := range []string{"Secret/team-a/web-ca", "Machine.cluster.x-k8s.io/team-a/web", "Namespace/team-a", "A./b", "team-a/web", "//", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := ParseRef(s); err == nil {
			if again, err := ParseRef(r.String()); err != nil || again != r {
				t.Errorf("%q became %q, and that %+v, %v", s, r, again, err)
			}
		}
		if k, err := ParseKey(s); err == nil && k.String() != s {
			t.Errorf("%q became %q", s, k)
		}
	})
}
