package restore

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// safe returns the text of an API error without values of fields, for kinds whose fields may be
// secrets (invariant I6): admission may quote what it refuses.
func safe(gk object.GroupKind, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	s := status.Status()
	var fields []string
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Field != "" {
				// its message quotes the value
				fields = append(fields, fmt.Sprintf("%s: %s", c.Field, c.Type))
			}
		}
	}
	if len(fields) == 0 && !capi.HoldsSecrets(gk) {
		return err.Error() // the words of a webhook, of authorization, of a conflict
	}
	text := fmt.Sprintf("%s (%d)", s.Reason, s.Code)
	if by := refusedBy.FindString(s.Message); by != "" {
		text += " " + by
	}
	if len(fields) > 0 {
		text += " " + strings.Join(fields, ", ")
	}
	return text
}

// refusedBy matches the words of an API server that name what refuses an object. They come before
// the words of a policy or a webhook, which may quote values. Kubernetes 1.36: admission/plugin in
// k8s.io/apiserver, policy/validating/dispatcher.go, webhook/errors/statuserror.go,
// pkg/admission/plugin/webhook/errors.go, and resourcequota/controller.go.
var refusedBy = regexp.MustCompile(`ValidatingAdmissionPolicy '[a-z0-9.:-]+' with binding ` +
	`'[a-z0-9.:-]+' denied request|admission webhook "[a-z0-9.-]+" denied the request|` +
	`failed calling webhook "[a-z0-9.-]+"|exceeded quota: [a-z0-9.-]+`)

func decodeBase64(s string) ([]byte, error) { return base64.StdEncoding.DecodeString(s) }

// keysMatch reports whether a public and a private key in PEM belong together. The service account
// pair is keys, not certificates.
func keysMatch(publicPEM, privatePEM []byte) bool {
	pub, _ := pem.Decode(publicPEM)
	priv, _ := pem.Decode(privatePEM)
	if pub == nil || priv == nil {
		return false
	}
	public, err := x509.ParsePKIXPublicKey(pub.Bytes)
	if err != nil {
		if public, err = x509.ParsePKCS1PublicKey(pub.Bytes); err != nil {
			return false
		}
	}
	private, err := parsePrivateKey(priv.Bytes)
	if err != nil {
		return false
	}
	equal, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && equal.Equal(public)
}

func parsePrivateKey(der []byte) (crypto.Signer, error) {
	if k, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return k, nil
	}
	if k, err := x509.ParseECPrivateKey(der); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	if signer, ok := k.(crypto.Signer); ok {
		return signer, nil
	}
	return nil, fmt.Errorf("key of type %T cannot sign", k)
}
