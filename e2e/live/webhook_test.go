package live

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/e2e/fleet"
)

// verdict is what a webhook answers about an object. It may wait until the request ends.
type verdict func(r *http.Request) admissionv1.AdmissionResponse

// refuse refuses every object.
func refuse(*http.Request) admissionv1.AdmissionResponse {
	return admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "the hook says no"}}
}

// hang answers nothing.
func hang(r *http.Request) admissionv1.AdmissionResponse {
	<-r.Context().Done()
	return admissionv1.AdmissionResponse{}
}

// addLabel adds a label to an object that has labels.
func addLabel(*http.Request) admissionv1.AdmissionResponse {
	patchType := admissionv1.PatchTypeJSONPatch
	return admissionv1.AdmissionResponse{Allowed: true, PatchType: &patchType, Patch: []byte(
		`[{"op":"add","path":"/metadata/labels/house.example.org~1hooked","value":"true"}]`)}
}

// serve starts a server with a certificate of its own for HTTPS on the loopback interface, and
// returns it with the certificate as a caBundle.
func (o *operator) serve(handler http.Handler) (server *httptest.Server, caBundle string) {
	o.t.Helper()
	server = httptest.NewTLSServer(handler)
	o.t.Cleanup(server.Close)
	return server, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// webhook returns an obstacle of one webhook for creations of objects of a resource ("group/name")
// in one namespace for which condition is true in CEL.
func webhook(kind, namespace, group, resource, condition string, answer verdict) func(
	o *operator) []*unstructured.Unstructured {
	return func(o *operator) []*unstructured.Unstructured {
		server, caBundle := o.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(w, "want an AdmissionReview", http.StatusBadRequest)
				return
			}
			response := answer(r)
			response.UID = review.Request.UID
			review.Request, review.Response = nil, &response
			_ = json.NewEncoder(w).Encode(review) // the API server has gone, when this fails
		}))
		configuration := object("admissionregistration.k8s.io/v1", kind, "", namespace)
		configuration.Object["webhooks"] = []any{map[string]any{
			"name":                    namespace + ".house.example.org",
			"clientConfig":            map[string]any{"url": server.URL, "caBundle": caBundle},
			"sideEffects":             "None",
			"timeoutSeconds":          int64(2),
			"failurePolicy":           "Fail",
			"admissionReviewVersions": []any{"v1"},
			"rules": []any{map[string]any{"apiGroups": []any{group}, "apiVersions": []any{"*"},
				"operations": []any{"CREATE"}, "resources": []any{resource}}},
			"matchConditions": []any{
				map[string]any{"name": "namespace", "expression": "request.namespace == '" + namespace +
					"'"},
				map[string]any{"name": "object", "expression": condition},
			},
		}}
		if err := o.clients[o.target].Create(o.t.Context(), configuration); err != nil {
			o.t.Fatal(err)
		}
		return []*unstructured.Unstructured{configuration}
	}
}

// webhooks are the obstacles with a webhook.
func webhooks() []obstacle {
	const validating, mutating = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
	const core = "cluster.x-k8s.io"
	return []obstacle{
		{
			name: "HookRefuses", shapes: pair("hook-refuses"),
			put:  webhook(validating, "hook-refuses", core, "machines", ofUnlucky, refuse),
			code: "refused-by-target", reason: "the hook says no",
			blocked: []string{"hook-refuses/unlucky"},
		},
		{
			name: "HookHangs", shapes: pair("hook-hangs"), known: true,
			put:  webhook(validating, "hook-hangs", core, "machines", ofUnlucky, hang),
			code: "webhook-down", reason: "hook-hangs.house.example.org",
			blocked: []string{"hook-hangs/unlucky"},
		},
		{
			name: "HookLabels",
			shapes: []fleet.Shape{{Name: "web", Namespace: "hook-labels", ControlPlanes: 1,
				Pools: []int{1}}},
			put: webhook(mutating, "hook-labels", core, "machines", "true", addLabel),
			changes: func(u *unstructured.Unstructured) (string, bool) {
				return newLabel(u, "house.example.org/hooked"), u.GetKind() == "Machine"
			},
		},
	}
}
