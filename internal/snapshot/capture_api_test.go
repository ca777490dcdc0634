//go:build api

package snapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Values of snapshot.Options.ExactLimit.
const (
	eitherWay  = 0             // the size of the source decides
	exactLists = math.MaxInt32 // every source is small
	watches    = -1            // every source is large
)

// scattered reads without Exact and lets time pass between kinds, as a tool does that lists kind
// after kind.
type scattered struct{ capture.Source }

func (s scattered) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func([]byte) error) (kube.ListResult, error) {
	o.Exact = ""
	if k.GroupKind == capi.Machine {
		time.Sleep(50 * time.Millisecond)
	}
	return s.Source.List(ctx, k, o, fn)
}

// TestAPICutIsConsistent writes a counter into a Cluster and then the same into a Machine, over
// and over. In a consistent cut the Machine is never ahead of the Cluster and never more than one
// behind; a capture that reads kind after kind sees otherwise, which shows that the test can fail.
func TestAPICutIsConsistent(t *testing.T) {
	servers.Fleet(t, crowded, "--namespace-prefix", "cut-", "--workloads", "16", "--machines", "8",
		"--fast")
	m := servers.Connect(t, crowded)
	namespace := onlyNamespace(t, m, "cut-")
	stop := countUp(t, m, namespace)
	defer stop()
	captures := func(source capture.Source, n int) (torn int) {
		for range n {
			cluster, machine := int64(-1), int64(-1)
			var mu sync.Mutex
			_, err := capture.Exact(t.Context(), source, capture.Scope{}, nil,
				func(n *graph.Node, raw []byte) error {
					count := gjson.GetBytes(raw, `metadata.annotations.test\.mgmtd\.dev/count`)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case !count.Exists():
					case n.GroupKind() == capi.Cluster:
						cluster = count.Int()
					case n.GroupKind() == capi.Machine:
						machine = count.Int()
					}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if cluster < 0 || machine < 0 {
				t.Fatal("the counters were not captured")
			}
			if machine > cluster || machine < cluster-1 {
				torn++
			}
		}
		return torn
	}
	if torn := captures(m.Reader(), 15); torn > 0 {
		t.Errorf("%d of 15 captures are torn", torn)
	}
	if captures(scattered{m.Reader()}, 5) == 0 {
		t.Error("captures of scattered lists are never torn: the test proves nothing")
	}
}

func onlyNamespace(t *testing.T, m *kube.Mgmt, prefix string) string {
	t.Helper()
	var found string
	_, err := m.Reader().List(t.Context(), kube.NamespaceKind, kube.ListOptions{Metadata: true},
		func(raw []byte) error {
			if name := gjson.GetBytes(raw, "metadata.name").String(); found == "" &&
				len(name) > len(prefix) && name[:len(prefix)] == prefix {
				found = name
			}
			return nil
		})
	if err != nil || found == "" {
		t.Fatalf("no namespace with prefix %s: %v", prefix, err)
	}
	return found
}

// countUp makes a Cluster and a Machine and counts up in both, the Cluster first, until stop is
// called.
func countUp(t *testing.T, m *kube.Mgmt, namespace string) (stop func()) {
	t.Helper()
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	var objectKinds []kube.Kind
	for _, gk := range []object.GroupKind{capi.Cluster, capi.Machine} {
		k, ok := kube.FindKind(kinds, gk)
		if !ok {
			t.Fatalf("%s is not served", gk)
		}
		var first *unstructured.Unstructured
		_, err := m.Reader().List(t.Context(), k, kube.ListOptions{Namespace: namespace, Limit: 1},
			func(raw []byte) error {
				first = &unstructured.Unstructured{}
				return first.UnmarshalJSON(raw)
			})
		if err != nil || first == nil {
			t.Fatalf("no %s in %s: %v", gk, namespace, err)
		}
		objects, objectKinds = append(objects, first), append(objectKinds, k)
	}
	set := func(ctx context.Context, i, count int) error {
		annotations := objects[i].GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["test.mgmtd.dev/count"] = strconv.Itoa(count)
		objects[i].SetAnnotations(annotations)
		updated, err := m.Writer().Update(ctx, objectKinds[i], objects[i])
		if err == nil {
			objects[i] = updated
		}
		return err
	}
	for i := range objects {
		if err := set(t.Context(), i, 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for count := 1; ctx.Err() == nil; count++ {
			for i := range objects {
				if err := set(ctx, i, count); err != nil && ctx.Err() == nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("count up: %v", err)
		}
	}
}

// keys makes keys and an empty encrypted store.
func newStore(t testing.TB) *store.Store {
	t.Helper()
	return newStoreIn(t, t.TempDir())
}

// newKeysIn makes keys in a folder and loads all of them.
func newKeysIn(t testing.TB, dir string) *store.Keys {
	t.Helper()
	generated, err := store.Keygen(dir+"/keys", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{generated.Recipient}, IdentityFiles: []string{dir + "/keys/identity.txt"},
		SigningKeyFile: dir + "/keys/signing.key", TrustedKeyFiles: []string{dir + "/keys/signing.pub"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func newStoreIn(t testing.TB, dir string) *store.Store {
	t.Helper()
	keys := newKeysIn(t, dir)
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(dir + "/store"), Keys: keys,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func run(t *testing.T, m *kube.Mgmt, st *store.Store, scope capture.Scope, exactLimit int) (
	r *snapshot.Result) {
	t.Helper()
	r, err := snapshot.Create(t.Context(), snapshot.Options{
		Source: m.Reader(), SourceName: m.Name(), SourceUID: m.UID(), Kubernetes: m.KubernetesVersion(),
		Providers: m.Providers, Store: st, Scope: scope, Writer: "test",
		ExactLimit: exactLimit,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAPISnapshotHoldsTheServersBytes takes a snapshot of everything and compares each object with
// what the server gives for it.
func TestAPISnapshotHoldsTheServersBytes(t *testing.T) {
	servers.Fleet(t, crowded, "--namespace-prefix", "bytes-", "--workloads", "6", "--machines", "3",
		"--machine-pools", "--fast")
	m, st := servers.Connect(t, crowded), newStore(t)
	first := run(t, m, st, capture.Scope{}, eitherWay)
	r := run(t, m, st, capture.Scope{}, eitherWay)
	if r.Sequence != first.Sequence+1 || r.Parent == nil || r.Parent.ID != first.ID ||
		r.Parent.SHA256 != first.SHA256 {
		t.Errorf("number %d, parent %+v after number %d, %s", r.Sequence, r.Parent, first.Sequence,
			first.ID)
	}
	report, err := st.VerifyStructure(t.Context(), r.Envelope, nil)
	if err != nil || len(report.Findings) > 0 {
		t.Fatalf("verify: %v, %v", report.Findings, err)
	}
	s, err := snapshot.Open(t.Context(), st, r.Envelope, nil)
	if err != nil {
		t.Fatal(err)
	}
	contents, err := s.Load(t.Context(), s.Graph.Nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Graph.Missing) > 0 {
		t.Errorf("missing: %v", s.Graph.Missing)
	}
	compared := compareWithServer(t, m, s, contents)
	if compared != len(s.Graph.Nodes) || compared < 200 {
		t.Errorf("compared %d of %d objects", compared, len(s.Graph.Nodes))
	}
	pools := slices.ContainsFunc(s.Graph.Nodes,
		func(n *graph.Node) bool { return n.Kind == "MachinePool" && n.Unit != "" })
	if !pools {
		t.Error("no MachinePool in a unit")
	}
}

func compareWithServer(t *testing.T, m *kube.Mgmt, s *snapshot.Snapshot,
	contents *snapshot.Contents) (compared int) {
	t.Helper()
	var mu sync.Mutex
	g, ctx := task.WithContext(t.Context())
	g.SetLimit(8)
	for _, n := range s.Graph.Nodes {
		g.Go(func() error {
			k, _ := kube.FindKind(s.About.Kinds, n.GroupKind())
			live, err := m.Reader().Get(ctx, k, n.Namespace, n.Name)
			if err != nil {
				return fmt.Errorf("%s: %w", n.Ref, err)
			}
			want, err := live.MarshalJSON()
			if err != nil {
				return err
			}
			raw, err := contents.Bytes(n.Ref)
			if err != nil {
				return err
			}
			if live.GetResourceVersion() != n.ResourceVersion || string(live.GetUID()) != n.UID ||
				!sameJSON(t, raw, want) {
				t.Errorf("%s is not what the server gives", n.Ref)
			}
			mu.Lock()
			defer mu.Unlock()
			compared++
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return compared
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var out [2][]byte
	for i, raw := range [][]byte{a, b} {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Error(err)
			return false
		}
		out[i], _ = json.Marshal(v)
	}
	return bytes.Equal(out[0], out[1])
}

// borrowClass makes a namespace with a Cluster whose class is in another one.
func borrowClass(t *testing.T, m *kube.Mgmt, lender, borrower string) {
	t.Helper()
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var class string
	classes, _ := kube.FindKind(kinds, capi.ClusterClass)
	if _, err := m.Reader().List(t.Context(), classes, kube.ListOptions{Namespace: lender},
		func(raw []byte) error {
			class = gjson.GetBytes(raw, "metadata.name").String()
			return nil
		}); err != nil || class == "" {
		t.Fatalf("no ClusterClass in %s: %v", lender, err)
	}
	clusters, _ := kube.FindKind(kinds, capi.Cluster)
	for _, o := range []struct {
		kind kube.Kind
		text string
	}{
		{kube.NamespaceKind, fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`,
			borrower)},
		{clusters, fmt.Sprintf(
			`{"apiVersion":%q,"kind":"Cluster","metadata":{"name":"borrower","namespace":%q},"spec":{"topology":{"classRef":{"name":%q,"namespace":%q},"version":"v1.35.0"}}}`,
			clusters.APIVersion(), borrower, class, lender)},
	} {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(o.text)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Writer().Create(t.Context(), o.kind, u); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAPIScopedSnapshotTakesWhatItNeeds captures one namespace: it must come with the ClusterClass
// in another one and its templates, and with nothing else from there.
func TestAPIScopedSnapshotTakesWhatItNeeds(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "scope-", "--workloads", "2", "--machines", "2",
		"--fast")
	borrowClass(t, servers.Connect(t, 0), onlyNamespace(t, servers.Connect(t, 0), "scope-"), borrowsNS)
	t.Run("small", func(t *testing.T) { testScoped(t, exactLists) })
	t.Run("large", func(t *testing.T) { testScoped(t, watches) })
	t.Run("selector", testSelected)
	t.Run("listed alone", testListScope)
}

// testListScope: a capture that lists one namespace only holds what one does that lists all.
func testListScope(t *testing.T) {
	o := snapshot.OptionsFor(servers.Connect(t, 0), nil)
	o.Scope, o.WithoutRelated = capture.Scope{Namespaces: []string{borrowsNS}}, true
	listed := &listsSeen{Source: o.Source}
	o.Source = listed
	var texts [2][]string
	for i := range texts {
		o.ListScope = i == 1
		listed.everywhere.Store(0)
		s, contents, err := snapshot.CaptureInMemory(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if whole := listed.everywhere.Load() > 0; whole == o.ListScope {
			t.Errorf("lists only the scope: %v, lists of all namespaces: %v", o.ListScope, whole)
		}
		for _, n := range s.Graph.Nodes {
			if raw, err := contents.Bytes(n.Ref); err != nil || len(raw) == 0 {
				t.Errorf("%s: %d bytes, %v", n.Ref, len(raw), err)
			}
			texts[i] = append(texts[i], fmt.Sprint(n.Ref, n.UID, n.ResourceVersion, n.Unit, n.Shared,
				n.Owners, n.Needs))
		}
		slices.Sort(texts[i])
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" || len(texts[0]) == 0 {
		t.Errorf("listed everything and listed the scope (-everything +scope):\n%s", diff)
	}
}

// listsSeen counts lists of namespaced kinds in all namespaces.
type listsSeen struct {
	capture.Source
	everywhere atomic.Int64
}

func (l *listsSeen) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	if k.Namespaced && o.Namespace == "" && o.Limit == 0 {
		l.everywhere.Add(1)
	}
	return l.Source.List(ctx, k, o, fn)
}

const borrowsNS = "scope-borrows"

func testScoped(t *testing.T, exactLimit int) {
	const namespace = borrowsNS
	m, st := servers.Connect(t, 0), newStore(t)
	all, err := snapshot.Open(t.Context(), st, run(t, m, st, capture.Scope{}, exactLimit).Envelope,
		nil)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, m, st, capture.Scope{Namespaces: []string{namespace}}, exactLimit)
	s, err := snapshot.Open(t.Context(), st, r.Envelope, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Partial || len(s.Graph.Missing) > 0 {
		t.Errorf("partial %v, missing %v", r.Partial, s.Graph.Missing)
	}
	for _, n := range all.Graph.Nodes {
		if n.Namespace == namespace && s.Graph.Node(n.Ref) == nil {
			t.Errorf("%s is in the namespace and not in its snapshot", n.Ref)
		}
	}
	for _, n := range s.Graph.Nodes {
		if n.Namespace != "" && n.Namespace != namespace && !n.Shared {
			t.Errorf("%s is of another namespace and nobody here needs it", n.Ref)
		}
	}
	if _, err := capture.Exact(t.Context(), m.Reader(),
		capture.Scope{Namespaces: []string{"no-such"}}, nil, nil); err == nil {
		t.Error("a namespace that does not exist gives a snapshot")
	}
}
