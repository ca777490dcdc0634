package live

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// extensionNS is the namespace of the workload cluster whose ClusterClass has a patch by a runtime
// extension, and the name of the extension.
const extensionNS = "extension"

// handlerName is the name of the extension's handler, as the extension calls it.
const handlerName = "add-command"

// extension is a runtime extension of Cluster API that generates patches for control planes.
type extension struct {
	url, caBundle string
	// down: it refuses all requests.
	down               atomic.Bool
	discovered, called atomic.Int64 // requests
}

// newExtension starts a runtime extension that serves until the test ends.
func newExtension(t *testing.T) *extension {
	t.Helper()
	e := &extension{}
	o := &operator{t: t}
	server, caBundle := o.serve(e)
	e.url, e.caBundle = server.URL, caBundle
	return e
}

// ServeHTTP answers the hooks Discovery and GeneratePatches.
func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.down.Load() {
		http.Error(w, "the extension is down", http.StatusServiceUnavailable)
		return
	}
	var response any
	switch {
	case strings.Contains(r.URL.Path, "/discovery"):
		e.discovered.Add(1)
		response = &hooksv1.DiscoveryResponse{
			TypeMeta:       hookType("DiscoveryResponse"),
			CommonResponse: hooksv1.CommonResponse{Status: hooksv1.ResponseStatusSuccess},
			Handlers: []hooksv1.ExtensionHandler{{Name: handlerName, RequestHook: hooksv1.GroupVersionHook{
				APIVersion: hooksv1.GroupVersion.String(), Hook: "GeneratePatches"}}},
		}
	case strings.Contains(r.URL.Path, "/generatepatches/"+handlerName):
		e.called.Add(1)
		var request hooksv1.GeneratePatchesRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response = generatePatches(request)
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(response) // the manager has gone, when this fails
}

// generatePatches adds a command to the control plane.
func generatePatches(request hooksv1.GeneratePatchesRequest) *hooksv1.GeneratePatchesResponse {
	response := &hooksv1.GeneratePatchesResponse{
		TypeMeta:       hookType("GeneratePatchesResponse"),
		CommonResponse: hooksv1.CommonResponse{Status: hooksv1.ResponseStatusSuccess},
	}
	for _, item := range request.Items {
		var template metav1.TypeMeta
		if err := json.Unmarshal(item.Object.Raw, &template); err != nil ||
			template.Kind != "KubeadmControlPlaneTemplate" {
			continue
		}
		response.Items = append(response.Items, hooksv1.GeneratePatchesResponseItem{
			UID: item.UID, PatchType: hooksv1.JSONPatchType, Patch: []byte(`[{"op":"add",` +
				`"path":"/spec/template/spec/kubeadmConfigSpec/postKubeadmCommands",` +
				`"value":["echo extended"]}]`),
		})
	}
	return response
}

func hookType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: hooksv1.GroupVersion.String(), Kind: kind}
}

// register creates the ExtensionConfig on the source.
func (e *extension) register(ctx context.Context, f *fixture) error {
	config := object("runtime.cluster.x-k8s.io/v1beta2", "ExtensionConfig", "", extensionNS)
	config.Object["spec"] = map[string]any{
		"clientConfig": map[string]any{"url": e.url, "caBundle": e.caBundle},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{
			"kubernetes.io/metadata.name": extensionNS}},
	}
	if err := f.clients[f.source].Create(ctx, config); err != nil {
		return fmt.Errorf("create ExtensionConfig: %w", err)
	}
	return nil
}

// extendedShape is the workload cluster of the scenario.
func extendedShape() fleet.Shape {
	return fleet.Shape{Name: "web", Namespace: extensionNS, ClassNamespace: extensionNS,
		ControlPlanes: 1, Pools: []int{1}, PatchedBy: handlerName + "." + extensionNS}
}

// testExtension restores a workload cluster of a ClusterClass with a runtime extension, first while
// the extension is down.
func (o *operator) testExtension(e *extension) {
	before := o.before.In(extensionNS)
	if !strings.Contains(fmt.Sprint(before.Of("controlplane.cluster.x-k8s.io",
		"KubeadmControlPlane")[0].Object), "echo extended") {
		o.t.Fatal("the extension has not patched the control plane on the source")
	}
	e.down.Store(true)
	discovered, called := e.discovered.Load(), e.called.Load()
	out := o.restore(codeLeft, "--source-is-gone", "--force", "source-seen-recently",
		"--namespace", extensionNS)
	o.assertBlames(out, "shared-failed", "ExtensionConfig.runtime.cluster.x-k8s.io/"+extensionNS, "")
	o.assertBlames(out, "unit-failed", extensionNS+"/web", "")
	assertNone(o.t, "created while the extension is down", belonging(o.inventory(extensionNS),
		[]string{"web"}))

	e.down.Store(false)
	o.run(codeDone, slices.Concat([]string{"operation", "resume", "latest"}, o.flags())...)
	o.assertRestored(o.t, before, nil, extensionNS)
	if e.discovered.Load() == discovered || e.called.Load() == called {
		o.t.Errorf("the target discovered the extension %d times and called it %d times",
			e.discovered.Load()-discovered, e.called.Load()-called)
	}
	config := observe.Ref{Group: "runtime.cluster.x-k8s.io", Kind: "ExtensionConfig",
		Name: extensionNS}
	if restored := o.inventory()[config]; restored == nil ||
		!observe.ConditionTrue(restored, "Discovered") {
		o.t.Errorf("%s is not there, or not discovered", config)
	}
}
