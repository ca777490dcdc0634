package snapshot

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// HasValues reports whether objects of a kind hold values that are shown only on request: those of
// Secrets.
func HasValues(gk object.GroupKind) bool { return gk == capi.Secret }

// What is shown of a Secret as it is. Anything else may hold a value, such as the annotation of
// kubectl apply.
var (
	shownFields   = []string{"apiVersion", "kind", "type", "immutable"}
	shownMetadata = []string{"name", "namespace", "generateName", "labels", "uid", "resourceVersion",
		"generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"ownerReferences", "finalizers"}
)

// WithoutValues returns the JSON of a Secret with the sizes of its values in their places, as
// kubectl describe shows it; its annotations count as values. No API server accepts the result as a
// Secret, so that nobody writes it over the real one. No error quotes the Secret.
func WithoutValues(secret []byte) ([]byte, error) {
	var in struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
		Data     map[string]any             `json:"data"`
		Strings  map[string]any             `json:"stringData"`
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(secret, &in) != nil || json.Unmarshal(secret, &fields) != nil {
		return nil, fmt.Errorf("decode Secret: not the JSON of one")
	}
	metadata := map[string]any{}
	for _, name := range shownMetadata {
		if value, ok := in.Metadata[name]; ok {
			metadata[name] = value
		}
	}
	var annotations map[string]any
	if raw, ok := in.Metadata["annotations"]; ok && json.Unmarshal(raw, &annotations) != nil {
		return nil, fmt.Errorf("decode Secret: its annotations are not texts")
	}
	if len(annotations) > 0 {
		metadata["annotations"] = sizes(annotations, false)
	}
	out := map[string]any{"metadata": metadata}
	for _, name := range shownFields {
		if value, ok := fields[name]; ok {
			out[name] = value
		}
	}
	if in.Data != nil {
		out["data"] = sizes(in.Data, true)
	}
	if in.Strings != nil {
		out["stringData"] = sizes(in.Strings, false)
	}
	return json.Marshal(out)
}

// sizes returns the sizes of texts in bytes; encoded ones are measured as what they encode.
func sizes(values map[string]any, encoded bool) map[string]string {
	out := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text, _ := values[name].(string)
		size := len(text)
		if raw, err := base64.StdEncoding.DecodeString(text); encoded && err == nil {
			size = len(raw)
		}
		out[name] = fmt.Sprintf("%d bytes", size)
	}
	return out
}
