package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestARefusedSecretNamesWhoRefusedItAndNoValue: the words of a policy or a webhook may quote a
// value of the Secret, its name does not.
func TestARefusedSecretNamesWhoRefusedItAndNoValue(t *testing.T) {
	const value = "c2VjcmV0"
	for _, tt := range []struct{ words, want string }{
		{"ValidatingAdmissionPolicy 'no-keys' with binding 'no-keys.all' denied request: " + value,
			"ValidatingAdmissionPolicy 'no-keys' with binding 'no-keys.all' denied request"},
		{`admission webhook "keys.example.org" denied the request: ` + value,
			`admission webhook "keys.example.org" denied the request`},
		{`failed calling webhook "keys.example.org": failed to call webhook: ` + value,
			`failed calling webhook "keys.example.org"`},
		{"exceeded quota: tight, requested: secrets=1, used: secrets=3, limited: secrets=3",
			"exceeded quota: tight"},
		{value + " is no key", ""},
	} {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "web-ca",
			errors.New(tt.words))
		got := SafeText(object.GroupKind{Kind: "Secret"}, err)
		if want := strings.TrimSpace("Forbidden (403) " + tt.want); got != want {
			t.Errorf("%s: got %q, want %q", tt.words, got, want)
		}
	}
}

// TestAnErrorOfAKindWithSecretsQuotesNoValue: variables of a topology and values of a chart may be
// secrets, and webhooks quote what they refuse. What kind of error it is can still be asked.
func TestAnErrorOfAKindWithSecretsQuotesNoValue(t *testing.T) {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "x", errors.New("token hunter2"))
	for gk, quotes := range map[object.GroupKind]bool{
		capi.Cluster: false, capi.ClusterClass: true, capi.Secret: false,
		{Group: capi.GroupAddons, Kind: "HelmChartProxy"}: false, capi.KubeadmControlPlane: false,
		capi.Machine: true} {
		safe := fmt.Errorf("write: %w", SafeError(gk, err))
		if strings.Contains(safe.Error(), "hunter2") != quotes || !apierrors.IsForbidden(safe) {
			t.Errorf("%s: %v", gk, safe)
		}
	}
	if SafeError(capi.Cluster, nil) != nil {
		t.Error("no error became one")
	}
}
