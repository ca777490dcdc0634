package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// words are what an API server says when it refuses an object, and the part of it that quotes no
// value.
var words = []struct{ said, safe string }{
	{"ValidatingAdmissionPolicy 'no-keys' with binding 'no-keys.all' denied request: hunter2",
		"ValidatingAdmissionPolicy 'no-keys' with binding 'no-keys.all' denied request"},
	{"ValidatingAdmissionPolicy 'no-keys' denied request: hunter2",
		"ValidatingAdmissionPolicy 'no-keys' denied request"},
	{"policy 'no-keys' with binding 'all' denied request: expression hunter2 resulted in error",
		"policy 'no-keys' with binding 'all' denied request"},
	{`policy "no-keys" denied request: hunter2`, `policy "no-keys" denied request`},
	{`admission webhook "keys.example.org" denied the request: hunter2`,
		`admission webhook "keys.example.org" denied the request`},
	{`failed calling webhook "keys.example.org": failed to call webhook: hunter2`,
		`failed calling webhook "keys.example.org"`},
	{"conversion webhook for example.org/v1alpha2, Kind=Thing failed: hunter2",
		"conversion webhook for example.org/v1alpha2, Kind=Thing"},
	{"conversion webhook for example.org/v1, Kind=Thing returned invalid metadata in object at index 0: " +
		"hunter2", "conversion webhook for example.org/v1, Kind=Thing"},
	{`failed calling webhook "keys.example.org": failed to call webhook: an error on the server ("http: ` +
		`panic serving hunter2") has prevented the request from succeeding`,
		`failed calling webhook "keys.example.org"`},
}

// downWords are what it says when a webhook was not reached.
var downWords = map[string]string{
	`Post "https://hook.ns.svc:443/x?timeout=10s": dial tcp 10.96.0.7:443: connect: connection refused`: "connection refused",
	`Post "https://hook.ns.svc:443/x?timeout=10s": no endpoints available for service "hook"`:           `no endpoints available for service "hook"`,
	`Post "https://hook.ns.svc:443/x?timeout=10s": context deadline exceeded`:                           "context deadline exceeded",
	`Post "https://hook.ns.svc:443/x": tls: failed to verify certificate: x509: certificate signed by unknown authority`: "x509: certificate signed by " +
		"unknown authority",
}

const quotaWords = "exceeded quota: tight, requested: count/things=1, used: count/things=3, limited: " +
	"count/things=3"

const notShown = ", in words that may quote values and are not shown"

// TestARefusedSecretNamesWhoRefusedItAndNoValue: the words of a policy or a webhook may quote a
// value of the Secret, its name does not.
func TestARefusedSecretNamesWhoRefusedItAndNoValue(t *testing.T) {
	for _, tt := range append(words, struct{ said, safe string }{"hunter2 is no key", ""}) {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "web-ca",
			errors.New(tt.said))
		want := "Forbidden (403)"
		if tt.safe != "" {
			want += " " + tt.safe + notShown
		}
		if got := SafeText(object.GroupKind{Kind: "Secret"}, err); got != want {
			t.Errorf("%s: got %q, want %q", tt.said, got, want)
		}
	}
	for said, cause := range downWords {
		err := apierrors.NewInternalError(errors.New(`failed calling webhook "x": failed to call webhook: ` + said))
		if got, want := SafeText(object.GroupKind{Kind: "Secret"}, err), `InternalError (500) failed calling `+
			`webhook "x": `+cause; got != want {
			t.Errorf("%s: got %q, want %q", said, got, want)
		}
	}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New(quotaWords))
	if got := SafeText(object.GroupKind{Kind: "Secret"}, quota); got !=
		"Forbidden (403) exceeded quota: tight" {
		t.Error(got)
	}
	alone := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "web-ca",
		errors.New(`admission webhook "x" denied the request`))
	if got := SafeText(object.GroupKind{Kind: "Secret"}, alone); strings.Contains(got, "not shown") {
		t.Errorf("without words: %q", got)
	}
}

// TestARefusedObjectOfAProviderQuotesNoValue: nobody knows which fields of the kinds of providers
// and of add-ons are secrets. Who refused is said, and what the API server says itself.
func TestARefusedObjectOfAProviderQuotesNoValue(t *testing.T) {
	resource := schema.GroupResource{Group: "infrastructure.cluster.x-k8s.io", Resource: "things"}
	for _, gk := range []object.GroupKind{
		{Group: "infrastructure.cluster.x-k8s.io", Kind: "ProxmoxMachine"}, capi.ClusterClass,
		{Group: "runtime.cluster.x-k8s.io", Kind: "ExtensionConfig"},
		{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}, {Group: "metal3.io", Kind: "BareMetalHost"},
	} {
		for _, tt := range words {
			want := fmt.Sprintf(`things.infrastructure.cluster.x-k8s.io "a" is forbidden: %s`, tt.safe) +
				notShown
			if got := SafeText(gk, apierrors.NewForbidden(resource, "a", errors.New(tt.said))); got != want {
				t.Errorf("%s: got %q, want %q", gk, got, want)
			}
		}
		for _, err := range []error{
			apierrors.NewForbidden(resource, "a", errors.New(`User "mgmtd" cannot create resource "things"`)),
			apierrors.NewForbidden(resource, "a", errors.New(quotaWords)),
			apierrors.NewConflict(resource, "a", errors.New("the object has been modified")),
			errors.New("connection refused"),
		} {
			if got := SafeText(gk, err); got != err.Error() {
				t.Errorf("%s: got %q, want %q", gk, got, err)
			}
		}
		invalid := apierrors.NewInvalid(schema.GroupKind(gk), "a", field.ErrorList{
			field.Invalid(field.NewPath("spec", "password"), "hunter2", "too short")})
		invalid.ErrStatus.Message = `admission webhook "x" denied the request: ` + invalid.ErrStatus.Message
		if got, want := SafeText(gk, invalid), `Invalid (422) admission webhook "x" denied the request `+
			"spec.password: FieldValueInvalid"; got != want {
			t.Errorf("%s: got %q, want %q", gk, got, want)
		}
	}
}

// TestAnErrorOfAKindWithSecretsQuotesNoValue: variables of a topology and values of a chart may be
// secrets, and webhooks quote what they refuse. What kind of error it is can still be asked.
func TestAnErrorOfAKindWithSecretsQuotesNoValue(t *testing.T) {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "x",
		errors.New(`admission webhook "x" denied the request: token hunter2`))
	for gk, quotes := range map[object.GroupKind]bool{
		capi.Cluster: false, capi.ClusterClass: false, capi.Secret: false,
		{Group: capi.GroupAddons, Kind: "HelmChartProxy"}: false, capi.KubeadmControlPlane: false,
		capi.Machine: true, capi.IPAddress: true} {
		safe := fmt.Errorf("write: %w", SafeError(gk, err))
		if strings.Contains(safe.Error(), "hunter2") != quotes || !apierrors.IsForbidden(safe) {
			t.Errorf("%s: %v", gk, safe)
		}
	}
	if SafeError(capi.Cluster, nil) != nil {
		t.Error("no error became one")
	}
}
