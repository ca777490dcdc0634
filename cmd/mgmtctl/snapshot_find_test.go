package main

import (
	"testing"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func testFound() []*mgmtv1.FindObjectResponse {
	snapshots, web := testSnapshots(), testObjects()[2]
	return []*mgmtv1.FindObjectResponse{
		{Snapshot: snapshots[0], Object: web,
			History: mgmtv1.ObjectHistory_OBJECT_HISTORY_CHANGED},
		{Snapshot: snapshots[0], Object: &mgmtv1.ListObjectsResponse{Ref: web.GetRef()},
			History: mgmtv1.ObjectHistory_OBJECT_HISTORY_DISAPPEARED},
		{Snapshot: snapshots[2], Problem: "bytes do not fit their hash"},
	}
}

func TestSnapshotFindNamesAnObject(t *testing.T) {
	for line, want := range map[string][3]string{
		"team-a/web":                          {"", "team-a", "web"},
		"team-a":                              {"", "", "team-a"},
		"cluster team-a/web":                  {"cluster", "team-a", "web"},
		"Namespace team-a --changes":          {"Namespace", "", "team-a"},
		"Cluster.cluster.x-k8s.io/team-a/web": {"Cluster.cluster.x-k8s.io", "team-a", "web"},
		"Secret/team-a/cloud":                 {"Secret.core", "team-a", "cloud"},
	} {
		f := newFake()
		f.found = testFound()[:2]
		runner{fake: f}.run(t, "snapshot find "+line+storeFlags).want(t, 0)
		req := requestOf[*mgmtv1.FindObjectRequest](t, f)
		if got := [3]string{req.GetKind(), req.GetNamespace(), req.GetName()}; got != want ||
			req.GetChanges() != (want[0] == "Namespace") {
			t.Errorf("%q: request %v", line, req)
		}
	}
	for _, line := range []string{"", " a/b/c/d", " x a/b c", " x a/"} {
		runner{fake: newFake()}.run(t, "snapshot find"+line+storeFlags).want(t, 2)
	}
}
