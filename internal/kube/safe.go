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

// SafeText returns the text of an API error without values of fields (invariant I6): admission may
// quote what it refuses. It names who refused and which fields. The words of a webhook or a policy
// stay only for kinds whose fields cannot be secrets, and those of the API server itself for kinds
// that are not known to have some.
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
		at := refusedBy.FindStringIndex(err.Error())
		if at == nil || capi.HoldsNoSecrets(gk) {
			return err.Error() // the words of authorization, of a conflict, of a quota
		}
		return err.Error()[:at[1]] + shown(err.Error()[at[1]:])
	}
	text := fmt.Sprintf("%s (%d)", s.Reason, s.Code)
	if at := refusedBy.FindStringIndex(s.Message); at != nil {
		text += " " + s.Message[at[0]:at[1]]
		if len(fields) == 0 {
			text += shown(s.Message[at[1]:])
		}
	} else if quota := exceeded.FindString(s.Message); quota != "" {
		text += " " + quota
	}
	if len(fields) > 0 {
		text += " " + strings.Join(fields, ", ")
	}
	return text
}

// withoutWords returns the error of a read without the words of a webhook: what cannot be converted
// is quoted at times. A read has no other values.
func withoutWords(err error) error {
	at := refusedBy.FindStringIndex(err.Error())
	if at == nil {
		return err
	}
	return &safeError{text: err.Error()[:at[1]] + shown(err.Error()[at[1]:]), err: err}
}

// shown returns what is shown of the words that follow those of refusedBy: why a webhook was not
// reached, else that they are left out.
func shown(words string) string {
	if cause := notReached.FindString(words); cause != "" {
		return ": " + cause
	}
	if words == "" {
		return ""
	}
	return ", in words that may quote values and are not shown"
}

// refusedBy matches the words of an API server that name what refuses an object, or what it cannot
// convert. They come before the words of a policy or a webhook, which may quote values. Kubernetes
// 1.36: admission/plugin in k8s.io/apiserver, policy/validating/dispatcher.go,
// policy/generic/policy_dispatcher.go, webhook/errors/statuserror.go,
// pkg/admission/plugin/webhook/errors.go; k8s.io/apiextensions-apiserver,
// pkg/apiserver/conversion/webhook_converter.go.
var refusedBy = regexp.MustCompile(`(Validating|Mutating)?(AdmissionPolicy|policy) ` +
	`['"][a-z0-9.:-]+['"]( with binding '[a-z0-9.:-]+')? denied request|` +
	`admission webhook "[a-z0-9.-]+" denied the request|failed calling webhook "[a-z0-9.-]+"|` +
	`conversion webhook for [A-Za-z0-9./-]+, Kind=[A-Za-z0-9]+`)

// exceeded matches the name of a quota; what follows are numbers (pkg/quota/v1 and
// resourcequota/controller.go).
var exceeded = regexp.MustCompile(`exceeded quota: [a-z0-9.-]+`)

// notReached matches why a webhook did not get a request, or did not answer. Its answer may quote
// the request, as a status of 500 does in "an error on the server".
var notReached = regexp.MustCompile(`no endpoints available for service "[a-z0-9.-]+"|` +
	`service "[a-z0-9.-]+" not found|connection refused|no such host|no route to host|i/o timeout|` +
	`context deadline exceeded|x509: certificate [a-z ]+`)
