package move

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestSharedObjectsAreComparedInOneVersion: the target stores classes in a newer version than the
// source. What somebody wrote to one on the source differs all the same, and one that the target
// does not serve in the version of the source cannot be compared: neither may be removed. One that
// is as it was copied may, whatever a conversion has made of it.
func TestSharedObjectsAreComparedInOneVersion(t *testing.T) {
	ref := object.Ref{Group: capi.Cluster.Group, Kind: "ClusterClass", Namespace: "ns", Name: "class"}
	class := func(version, value string) string {
		return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"ClusterClass","metadata":{"namespace":"ns",
			"name":"class","uid":"u"},"spec":{"value":%q}}`, ref.Group, version, value)
	}
	target := serve(t, map[string]string{
		"/apis/cluster.x-k8s.io/v1beta1/namespaces/ns/clusterclasses/class": class("v1beta1", "old"),
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/clusterclasses/class": class("v1beta2", "old")})
	for name, tt := range map[string]struct {
		served []string
		value  string
		copied string // "" when that is not known
		want   string
	}{
		"equal": {[]string{"v1beta1", "v1beta2"}, "old", "", ""},
		"changed": {[]string{"v1beta1", "v1beta2"}, "new", "old",
			"differs from the target's in spec.value"},
		"converted":  {[]string{"v1beta1", "v1beta2"}, "new", "new", ""},
		"not served": {[]string{"v1beta2"}, "old", "", "does not serve cluster.x-k8s.io/v1beta1"},
	} {
		t.Run(name, func(t *testing.T) {
			copied := &batch{Snapshot: "s"} // which salts its ids
			m := &run{batches: []*batch{{Snapshot: "other"}, copied}}
			m.Target = Mgmt{Reader: target, Kinds: []kube.Kind{{GroupKind: ref.GroupKind(),
				Version: "v1beta2", Resource: "clusterclasses", Namespaced: true, Served: tt.served}}}
			of := func(value string) *unstructured.Unstructured {
				u := &unstructured.Unstructured{}
				if err := u.UnmarshalJSON([]byte(class("v1beta1", value))); err != nil {
					t.Fatal(err)
				}
				return u
			}
			was := objectState{UID: "u"}
			if tt.copied != "" {
				var err error
				if was.Desired, err = copied.desiredID(nil, of(tt.copied)); err != nil {
					t.Fatal(err)
				}
			}
			copied.Source = map[string]objectState{ref.String(): was}
			copied.Copy.Shared.Objects = []restore.Object{{Ref: ref, Action: restore.Create}}
			why, err := m.differsFrom(t.Context(), m.sharedOfBatches(), ref, of(tt.value))
			if err != nil || (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
				t.Errorf("got %q, %v, want %q", why, err, tt.want)
			}
		})
	}
}

// dies is an answer of a server that dies once it has said who it is.
const dies = "dies"

// serve returns a reader of an API server that has these answers, by path.
func serve(t *testing.T, answers map[string]string) *kube.Reader {
	t.Helper()
	answers["/version"] = `{"gitVersion":"v1.36.3"}`
	answers["/api/v1/namespaces/kube-system"] = `{"apiVersion":"v1","kind":"Namespace",
		"metadata":{"name":"kube-system","uid":"u"}}`
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		switch _, ends := answers[dies]; {
		case !ok:
			http.NotFound(w, r)
			return
		case ends && strings.HasSuffix(r.URL.Path, "/kube-system") && asked.Add(1) > 1:
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c",
		"context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mgmt, err := kube.Connect(t.Context(), kube.Options{KubeconfigFile: file})
	if err != nil {
		t.Fatal(err)
	}
	return mgmt.Reader()
}
