package s3

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// credentialsError is a failure of the service that issues credentials.
type credentialsError struct {
	text  string // without secrets
	class error
	tip   string
	again bool // another try may succeed
}

func (e *credentialsError) Error() string { return e.text }

// profileError is the error of a profile that cannot be used. It quotes names and no content.
func (a *awsFiles) profileError(profile string, err error) error {
	if profile == "" {
		profile = os.Getenv("AWS_PROFILE")
	}
	usage := &bucket.UsageError{Text: "open S3 store: profile " + quoted(profile) + a.where() +
		" cannot be used", Tip: "check the sections of the AWS files that it needs"}
	missing, isMissing := errors.AsType[config.SharedConfigProfileNotExistError](err)
	role, isRole := errors.AsType[config.SharedConfigAssumeRoleError](err)
	switch {
	case isRole:
		usage.Text += ": the credentials for its role_arn are missing"
		usage.Tip = "give profile " + quoted(role.Profile) + " a source_profile that has credentials"
	case isMissing:
		usage.Text = "open S3 store: no profile " + quoted(missing.Profile) + a.where()
		usage.Tip = "name a section of the AWS credentials or configuration file; the credentials of " +
			"the host are not taken instead"
	}
	if _, ok := errors.AsType[config.AssumeRoleTokenProviderNotSetError](err); ok {
		usage.Text += ": its role asks for a second factor"
		usage.Tip = "use a role without mfa_serial: nobody is there to type a code"
	}
	return usage
}

// answersOfSTS are the codes of AWS STS that say that it answers and refuses.
var answersOfSTS = []string{"AccessDenied", "AccessDeniedException", "InvalidClientTokenId",
	"SignatureDoesNotMatch", "InvalidIdentityToken", "IDPRejectedClaim", "ExpiredToken",
	"ExpiredTokenException", "RegionDisabledException", "UnrecognizedClientException",
	"ValidationError", "InvalidParameterValue"}

// retrieveError classifies what the SDK says. configured reports whether something says where
// credentials are to come from; else the last resort, the role of the host, did not answer. Texts
// of the SDK are not passed on, but for the code and the message of an answer.
func retrieveError(err error, configured bool) error {
	response, answered := errors.AsType[*smithyhttp.ResponseError](err)
	api, isAPI := errors.AsType[smithy.APIError](err)
	token, isToken := errors.AsType[*ssocreds.InvalidTokenError](err)
	file, isFile := errors.AsType[*os.PathError](err)
	switch {
	case isToken && token != nil:
		return &bucket.UsageError{Text: "open S3 store: the session of AWS SSO has ended",
			Tip: "log in once more: aws sso login"}
	case isFile:
		return &bucket.UsageError{Text: "open S3 store: read what credentials are asked for with",
			Err: file}
	case isAPI && slices.Contains(answersOfSTS, api.ErrorCode()):
		return &credentialsError{class: bucket.ErrDenied,
			text: "credentials are refused: " + api.ErrorCode() + " (" + api.ErrorMessage() + ")",
			tip: "check role_arn, and whether the trust policy of the role names who asks for it; for a " +
				"web identity also its audience"}
	case !configured && (!answered || response.HTTPStatusCode() < http.StatusInternalServerError):
		return &bucket.UsageError{Text: "open S3 store: no credentials found", Tip: tipCredentials}
	case answered && response.HTTPStatusCode() < http.StatusInternalServerError &&
		response.HTTPStatusCode() != http.StatusTooManyRequests:
		code := ""
		if isAPI {
			code = ": " + api.ErrorCode()
		}
		return &credentialsError{class: bucket.ErrDenied, text: "credentials are refused with status " +
			http.StatusText(response.HTTPStatusCode()) + code,
			tip: "check the role of this host or workload"}
	}
	if strings.Contains(err.Error(), "process provider error") {
		return &bucket.UsageError{Text: "open S3 store: the credential_process of the profile failed",
			Tip: "run its command by hand"}
	}
	return &credentialsError{class: bucket.ErrUnreachable, again: true,
		text: "the service that gives out credentials does not answer",
		tip: "check that AWS STS, or the role endpoint, can be reached from this host; " +
			"AWS_ENDPOINT_URL_STS names another STS"}
}
