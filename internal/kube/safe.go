package kube

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// SafeError returns an API error with a safe text in place of its own. errors.As still finds it.
// nil stays nil.
func SafeError(gk object.GroupKind, err error) error {
	if err == nil {
		return nil
	}
	return &safeError{text: SafeText(gk, err), err: err}
}

type safeError struct {
	text string
	err  error
}

func (e *safeError) Error() string { return e.text }

func (e *safeError) Unwrap() error { return e.err }

// SafeText returns the text of an API error without values of fields, for kinds whose fields may be
// secrets (invariant I6): admission may quote what it refuses.
func SafeText(gk object.GroupKind, err error) string {
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
