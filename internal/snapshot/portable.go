package snapshot

import (
	"encoding/json"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// ofTheSource are the fields of metadata that another API server refuses in a create
// (resourceVersion), overwrites, or acts upon: its garbage collector deletes an object whose owners
// have UIDs that it does not know.
var ofTheSource = []string{"uid", "resourceVersion", "generation", "creationTimestamp",
	"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields",
	"ownerReferences"}

// ForKubectl returns the JSON of an object as kubectl create takes it: without what belongs to the
// source, and without its status. A Cluster is paused in it, so that no controller begins to
// reconcile a workload cluster that another management cluster may own (invariant I1). No error
// quotes the object.
func ForKubectl(gk object.GroupKind, body []byte) ([]byte, error) {
	var fields, metadata map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || json.Unmarshal(fields["metadata"], &metadata) != nil {
		return nil, fmt.Errorf("decode %s: not the JSON of an object", gk.Kind)
	}
	for _, name := range ofTheSource {
		delete(metadata, name)
	}
	delete(fields, "status")
	if gk == capi.Cluster {
		var spec map[string]json.RawMessage
		if raw, ok := fields["spec"]; ok && json.Unmarshal(raw, &spec) != nil {
			return nil, fmt.Errorf("decode %s: its spec is no object", gk.Kind)
		}
		if spec == nil {
			spec = map[string]json.RawMessage{}
		}
		spec["paused"] = json.RawMessage("true")
		if err := encodeInto(fields, "spec", spec); err != nil {
			return nil, err
		}
	}
	if err := encodeInto(fields, "metadata", metadata); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

func encodeInto(fields map[string]json.RawMessage, name string,
	value map[string]json.RawMessage) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	fields[name] = raw
	return nil
}
