package restore

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		got := safe(object.GroupKind{Kind: "Secret"}, err)
		if want := strings.TrimSpace("Forbidden (403) " + tt.want); got != want {
			t.Errorf("%s: got %q, want %q", tt.words, got, want)
		}
	}
}
