package kube

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mgmtd/mgmtd/internal/object"
)

// FuzzList: what the walker gives of a list, one object at a time, is what decoding the whole of it
// gives.
func FuzzList(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"abc"},"items":[{"metadata":{"name":"a"}}, {"metadata":{"name":"b"}}]}`,
		`{"items":null,"metadata":{"resourceVersion":"1"}}`, `{"items":[],"metadata":{}}`,
		`{"metadata":{},"items":[{}]`, `{"items":[1]}`, `{"items":{"a":1}}`, `{"items":[{"a":1,"a":2}]}`,
		`[]`,
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

// FuzzChanges: what a watch gives is of objects, up to the version that was asked for, and it never
// goes back.
func FuzzChanges(f *testing.F) {
	for _, seed := range []string{
		`{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"11"}}}` + "\n" + `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20"}}}`,
		`{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"12"}}}{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"21"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`, `{"type":"ERROR","object":1}`,
		`{"type":"ADDED","object":null}`,
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":"-1"}}}`,
		`{"type":"NEWS","object":{"metadata":{"resourceVersion":"11"}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"19"}}}{"type":"ADD`, `[]`,
		`{"type":"ADDED","object":[{"metadata":{"resourceVersion":"11"}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w := watcher{at: 10, to: 20}
		last := w.at
		w.fn = func(_ bool, raw []byte) error {
			if !jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) || raw[0] != '{' {
				t.Errorf("gave %q, which is no object", raw)
			}
			if w.at < last || w.at >= w.to {
				t.Errorf("gave a change at %d after %d, up to %d", w.at, last, w.to)
			}
			last = w.at
			return nil
		}
		if err := w.read(t.Context(), bytes.NewReader(text)); err == nil && w.at < last {
			t.Errorf("went back from %d to %d", last, w.at)
		}
	})
}

func FuzzRef(f *testing.F) {
	for _, s := range []string{"Secret/team-a/web-ca", "Machine.cluster.x-k8s.io/team-a/web",
		"Namespace/team-a", "A./b", "team-a/web", "//", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := object.ParseRef(s); err == nil {
			if again, err := object.ParseRef(r.String()); err != nil || again != r {
				t.Errorf("%q became %q, and that %+v, %v", s, r, again, err)
			}
		}
		if k, err := object.ParseKey(s); err == nil && k.String() != s {
			t.Errorf("%q became %q", s, k)
		}
	})
}
