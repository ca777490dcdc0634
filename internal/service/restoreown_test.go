package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// TestARestoreWhoseHostWakesUpAllowsNothing: another host has taken it over, and a later move may
// have put the Cluster on the list of the target.
func TestARestoreWhoseHostWakesUpAllowsNothing(t *testing.T) {
	identity := answering(t, "uid-b")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		if r.URL.Path != "/api/v1/namespaces/kube-system/configmaps/mgmtd-moved" {
			identity.Config.Handler.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConfigMap", "apiVersion": "v1",
			"metadata": map[string]any{"name": "mgmtd-moved", "namespace": "kube-system", "uid": "u",
				"resourceVersion": "1"}, "data": map[string]any{"team-a.one": "id", "team-a.two": "id"}})
	}))
	t.Cleanup(server.Close)
	target, err := kube.Connect(t.Context(), kubeconfigOf(t, "b", server.URL))
	if err != nil {
		t.Fatal(err)
	}
	errLost := errors.New("another host has taken over")
	f := newOwnedFixture(t, true)
	f.target = target
	j := f.catalog.Journal(f.journal.Operation(), catalog.JournalOptions{
		Alive: func(context.Context) error { return errLost }})
	if err := f.allow(t.Context(), j, ownedUnit); !errors.Is(err, errLost) {
		t.Errorf("it ended with %v", err)
	}
}
