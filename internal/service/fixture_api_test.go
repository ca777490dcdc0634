//go:build api

package service

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

var servers *kubetest.Servers

func TestMain(m *testing.M) {
	os.Exit(kubetest.Main(m, 2, func(s *kubetest.Servers) { servers = s }))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apiFixture is a fleet on the first of two management clusters, with the keys, the store and the
// catalog of a daemon that knows both.
type apiFixture struct {
	t         *testing.T
	dir       string
	namespace string
	// ids are the ids of the workload clusters, by name.
	ids map[string]string
}

// units are the workload clusters of the fleet.
var units = []string{"w-00000", "w-00001", "w-00002"}

func newAPIFixture(t *testing.T, prefix string) *apiFixture {
	t.Helper()
	f := &apiFixture{t: t, dir: t.TempDir(), namespace: prefix + "-team-0000",
		ids: map[string]string{}}
	servers.Fleet(t, 0, "--namespace-prefix", prefix+"-", "--workloads", fmt.Sprint(len(units)),
		"--machines", "1", "--fast")
	for i := range 2 {
		servers.AcknowledgeIn(t, i, f.namespace)
	}
	_, err := store.Keygen(filepath.Join(f.dir, "keys"), time.Now())
	must(t, err)
	for _, unit := range units {
		cluster := f.cluster(0, unit)
		f.ids[unit] = string(cluster.GetUID())
		if id := cluster.GetAnnotations()[capi.AnnotationWorkloadID]; id != "" {
			f.ids[unit] = id
		}
	}
	return f
}

// daemon makes the server of a daemon, which the caller closes.
func (f *apiFixture) daemon() *Server {
	f.t.Helper()
	recipient, err := os.ReadFile(filepath.Join(f.dir, "keys", "recipient.txt"))
	must(f.t, err)
	sides := []kube.Options{servers.Options(0), servers.Options(1)}
	s := New(Config{
		CatalogFile: filepath.Join(f.dir, "catalog.db"), Daemon: true,
		Log: slog.New(slog.NewTextHandler(f.t.Output(), nil)), Sources: sides, Targets: sides,
		Locations: []Location{{Name: "default", Default: true, Store: StoreOptions{
			URL:             "file://" + filepath.Join(f.dir, "store"),
			Recipients:      []string{string(bytes.TrimSpace(recipient))},
			SigningKeyFile:  filepath.Join(f.dir, "keys", "signing.key"),
			TrustedKeyFiles: []string{filepath.Join(f.dir, "keys", "signing.pub")},
		}}},
	})
	return s
}

// cluster returns a Cluster of the fleet on one side, nil when there is none.
func (f *apiFixture) cluster(side int, unit string) *unstructured.Unstructured {
	f.t.Helper()
	reader := servers.Connect(f.t, side).Reader()
	kinds, err := reader.Kinds(f.t.Context())
	must(f.t, err)
	k, _ := kube.FindKind(kinds, capi.Cluster)
	u, err := reader.Get(f.t.Context(), k, f.namespace, unit)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(f.t, err)
	return u
}

// owner returns the ownership record of a workload cluster.
func (f *apiFixture) owner(s *Server, unit string) store.SignedOwner {
	f.t.Helper()
	st, err := s.openStore(f.t.Context(), "", nil)
	must(f.t, err)
	record, err := st.GetOwner(f.t.Context(), f.ids[unit])
	must(f.t, err)
	return record
}

// isPaused reports whether a Cluster carries a switch that is set, as controllers read it.
func isPaused(cluster *unstructured.Unstructured) bool {
	_, annotated := cluster.GetAnnotations()[capi.AnnotationPaused]
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return annotated || paused
}

// await waits until an operation is in a state, and fails when it ends in another one that it does
// not leave by itself.
func (f *apiFixture) await(s *Server, id string, want catalog.State) catalog.Operation {
	f.t.Helper()
	c, err := s.openCatalog(f.t.Context())
	must(f.t, err)
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		op, err := findOperation(f.t.Context(), c, id)
		must(f.t, err)
		if op.State == want {
			must(f.t, s.awaitClosed(f.t.Context(), c, op.ID)) // what follows the end is done as well
			return op
		}
		if op.State == catalog.Failed || op.State.Final() || time.Now().After(deadline) {
			f.t.Fatalf("%s is %s, want %s: %s %v", op.Kind, op.State, want, op.Message,
				unitFindings(f.t, c, op.ID))
		}
	}
}

func unitFindings(t *testing.T, c *catalog.Catalog, id catalog.OperationID) (texts []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
	defer cancel() // the operation may still run
	for e, err := range c.Watch(ctx, id, 0) {
		if err != nil {
			return append(texts, err.Error())
		}
		if f := e.Finding; f != nil && f.Severity >= object.Error {
			texts = append(texts, f.String())
		}
	}
	return texts
}
