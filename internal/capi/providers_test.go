package capi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestRowsReadTheObjectsOfTheirProviders compares testdata/<provider>.jsonl with the rows: each
// line has an object, how it is paused, and the objects that it names.
func TestRowsReadTheObjectsOfTheirProviders(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	clusterScoped := []string{"GlobalInClusterIPPool", "ExtensionConfig", "OpenStackClusterIdentity",
		"AWSClusterControllerIdentity", "AWSClusterRoleIdentity", "AWSClusterStaticIdentity",
		"VSphereClusterIdentity", "VSphereDeploymentZone", "VSphereFailureDomain", "ClusterTemplate"}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(bytes.NewReader(text))
			for lines.Scan() {
				var want struct {
					Pause      string
					Refs       []string
					Controller string
					Object     json.RawMessage
				}
				if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
					t.Fatal(err)
				}
				obj := decoded(t, string(want.Object))
				var rows *Table
				row := rows.Row(kindOf(obj))
				if row.Pause.String() != want.Pause {
					t.Errorf("%s is paused by %s, want %s", kindOf(obj), row.Pause, want.Pause)
				}
				var refs []string
				for _, field := range row.Refs {
					for _, ref := range field.In(fieldsOf(want.Object, want.Controller),
						func(gk object.GroupKind) bool { return !slices.Contains(clusterScoped, gk.Kind) }) {
						named := ref.String()
						if field.Back {
							named += " (back)"
						}
						if field.Optional {
							named += " (optional)"
						}
						refs = append(refs, named)
					}
				}
				slices.Sort(refs)
				if diff := cmp.Diff(want.Refs, refs, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s names (-want +got):\n%s", kindOf(obj), diff)
				}
			}
		})
	}
}

// fieldsOf returns the fields of an object that references read.
func fieldsOf(raw []byte, controller string) Fields {
	o := gjson.ParseBytes(raw)
	return Fields{Spec: o.Get("spec"), Status: o.Get("status"), Annotations: o.Get("metadata.annotations"),
		Namespace: o.Get("metadata.namespace").String(), Name: o.Get("metadata.name").String(),
		Controller: controller}
}
