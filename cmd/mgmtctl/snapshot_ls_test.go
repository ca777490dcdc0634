package main

import (
	"fmt"
	"strings"
	"testing"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func testObjects() []*mgmtv1.ListObjectsResponse {
	return []*mgmtv1.ListObjectsResponse{
		{Ref: ref("", "Namespace", "", "team-a"), Shared: true, Size: 900, ApiVersion: "v1"},
		{Ref: ref("", "Secret", "team-a", "cloud"), Shared: true, Size: 3 << 10, ApiVersion: "v1"},
		{Ref: ref(clusterAPI, "Cluster", "team-a", "web"), Unit: "team-a/web", Size: 5 << 10,
			Paused: true, Deleting: true, ApiVersion: clusterAPI + "/v1beta2", Uid: "8c1b",
			ResourceVersion: "42"},
		{Ref: ref(clusterAPI, "Machine", "team-a", "many"), Unit: "team-a/web", Omitted: true},
	}
}

func testObject() *mgmtv1.GetObjectResponse {
	return &mgmtv1.GetObjectResponse{Ref: ref("", "Secret", "team-a", "cloud"), ValuesLeftOut: true,
		Json: []byte(`{"apiVersion":"v1","data":{"key":"6 bytes"},"kind":"Secret",` +
			`"metadata":{"name":"cloud","namespace":"team-a","generation":12345678901234567}}`)}
}

func TestSnapshotLsSendsItsFilter(t *testing.T) {
	for line, want := range map[string]string{
		"":                        "latest [] [] []",
		" 1a2b":                   "1a2b [] [] []",
		" 1a2b team-a":            "1a2b [] [team-a] []",
		" latest --kind Secret":   "latest [Secret] [] []",
		" --kind Secret --kind x": "latest [Secret x] [] []",
		" 1a2b team-a --namespace team-b --workload team-a/web": "1a2b [] [team-b team-a] [team-a/web]",
	} {
		f := newFake()
		r := runner{fake: f}.run(t, "snapshot ls"+storeFlags+line).want(t, 0)
		req := requestOf[*mgmtv1.ListObjectsRequest](t, f)
		if got := fmt.Sprintf("%s %v %v %v", req.GetId(), req.GetFilter().GetKinds(),
			req.GetFilter().GetNamespaces(), req.GetFilter().GetWorkloads()); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
		r.stderrHas(t, "no objects")
	}
	runner{fake: newFake()}.run(t, "snapshot ls a b c"+storeFlags).want(t, 2)
	runner{fake: newFake()}.run(t, "snapshot ls --workload web"+storeFlags).want(t, 2)
	runner{fake: newFake()}.run(t, "snapshot ls -o svg"+storeFlags).want(t, 2)
}

// TestSnapshotCatNamesOneObject: by a kind and a name, or by a line of snapshot ls -o name.
func TestSnapshotCatNamesOneObject(t *testing.T) {
	for line, want := range map[string][3]string{
		"secret team-a/cloud":                       {"secret", "team-a", "cloud"},
		"Namespace team-a":                          {"Namespace", "", "team-a"},
		"Secret/team-a/cloud":                       {"Secret.core", "team-a", "cloud"},
		"Cluster.cluster.x-k8s.io/team-a/web":       {"Cluster.cluster.x-k8s.io", "team-a", "web"},
		"Cluster.cluster.x-k8s.io team-a/web":       {"Cluster.cluster.x-k8s.io", "team-a", "web"},
		"secret team-a/cloud --with-secrets -ojson": {"secret", "team-a", "cloud"},
	} {
		f := newFake()
		f.object = testObject()
		r := runner{fake: f}.run(t, "snapshot cat 1a2b "+line+storeFlags).want(t, 0)
		req := requestOf[*mgmtv1.GetObjectRequest](t, f)
		if got := [3]string{req.GetKind(), req.GetNamespace(), req.GetName()}; got != want ||
			req.GetId() != "1a2b" || req.GetWithSecrets() != strings.Contains(line, "--with-secrets") {
			t.Errorf("%q: request %v", line, req)
		}
		r.stderrHas(t, "the values of Secret/team-a/cloud are left out; --with-secrets prints them")
	}
	for _, line := range []string{"", " latest", " latest Secret", " latest Secret a/b/c",
		" latest Secret a/b c", " latest Secret a/b -o table"} {
		runner{fake: newFake()}.run(t, "snapshot cat"+line+storeFlags).want(t, 2)
	}
}
