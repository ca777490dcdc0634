package s3

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// verdict is what an error of a request means.
type verdict struct {
	err     error
	again   bool // worth another try
	once    bool // but only one
	refused bool // nothing listens there
}

const (
	tipBusy = "the storage server answers, but only with errors: look at its log, or " +
		"try again later"
	tipElsewhere = "the bucket is in another region or behind another endpoint: set region= and " +
		"endpoint= in the --store URL"
)

// answers gives the error codes of S3 servers their class, their hint, and whether to try again.
// What is on no line goes by its HTTP status.
var answers = []struct {
	codes []string
	class error
	tip   string
	again bool
}{
	{[]string{"NoSuchKey", "NoSuchVersion", "NotFound"}, bucket.ErrNotFound, "", false},
	{[]string{"NoSuchBucket"}, bucket.ErrStoreMissing, "create the bucket on the storage server, or " +
		"correct its name in the --store URL", false},
	{[]string{"AccessDenied", "AllAccessDisabled", "AccountProblem"}, bucket.ErrDenied,
		"the storage server knows these credentials, but they lack rights here: reading needs " +
			"GetObject and ListBucket, writing PutObject; what versions, Object Lock and deleting need " +
			"is in docs/config.md", false},
	{[]string{"InvalidAccessKeyId", "InvalidAccessKeyID", "SignatureDoesNotMatch", "InvalidSecurity",
		"XMinioInvalidAccessKey", "XAdminUserNotFound"}, bucket.ErrDenied,
		"the storage server does not take these credentials; " + tipCredentials, false},
	{[]string{"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "ExpiredTokenException"},
		bucket.ErrDenied, "the session token has expired or does not belong to the key: get " +
			"new credentials",
		false},
	{[]string{"RequestTimeTooSkewed", "RequestExpired"}, bucket.ErrDenied,
		"set the clock of this host, or that of the storage server", false},
	{[]string{"PermanentRedirect", "TemporaryRedirect", "Redirect", "MovedPermanently",
		"AuthorizationHeaderMalformed", "InvalidRegion", "IllegalLocationConstraintException"},
		bucket.ErrUnreachable, tipElsewhere, false},
	{[]string{"InsufficientStorage", "QuotaExceeded", "StorageFull", "XMinioStorageFull",
		"XMinioAdminBucketQuotaExceeded", "ServiceQuotaExceeded"}, bucket.ErrNoSpace, "", false},
	{[]string{"PreconditionFailed"}, bucket.ErrConflict, "", false},
	// two writers met, and neither has won
	{[]string{"ConditionalRequestConflict", "OperationAborted"}, bucket.ErrConflict, "", true},
	{[]string{"SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "InternalError",
		"RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded"},
		bucket.ErrUnreachable,
		tipBusy, true},
}

// judge sorts what a request ended with.
func (b *Bucket) judge(op, key string, err error, seen *attempt) verdict {
	if usage, ok := errors.AsType[*bucket.UsageError](err); ok {
		return verdict{err: usage}
	}
	e := &bucket.Error{Op: op, Key: key}
	answer := minio.ToErrorResponse(err)
	if answer.Code == "" {
		return b.judgeConnection(e, err, seen)
	}
	e.Err = b.answerError(answer)
	v := verdict{err: e}
	known := false
	for _, a := range answers {
		if slices.Contains(a.codes, answer.Code) {
			e.Class, e.Tip, v.again, known = a.class, a.tip, a.again, true
		}
	}
	if !known {
		v.again = byStatus(e, answer)
	}
	b.refine(e, answer, seen, &v)
	return v
}

// byStatus sorts an answer whose code says nothing, and tells whether to try again.
func byStatus(e *bucket.Error, answer minio.ErrorResponse) (again bool) {
	switch status := answer.StatusCode; {
	case status == http.StatusInsufficientStorage:
		e.Class = bucket.ErrNoSpace
	case status == http.StatusNotImplemented:
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		e.Class, e.Tip = bucket.ErrUnreachable, tipBusy
		return true
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Class, e.Tip = bucket.ErrDenied, "the storage server refuses access; "+tipCredentials
	case status >= 300 && status < 400:
		e.Class, e.Tip = bucket.ErrUnreachable, tipElsewhere
	case strings.Contains(answer.Message, "HTTPS"):
		e.Class, e.Tip = bucket.ErrUnreachable, "the endpoint expects TLS: write endpoint=https://"
	}
	return false
}

// refine puts what only this answer tells into the hint.
func (b *Bucket) refine(e *bucket.Error, answer minio.ErrorResponse, seen *attempt, v *verdict) {
	switch {
	case answer.Code == "RequestTimeTooSkewed" || answer.Code == "RequestExpired":
		if server, err := http.ParseTime(seen.header.Get("Date")); err == nil {
			e.Tip = "set the clock of this host: it is " + skew(time.Since(server))
		}
	case e.Class == bucket.ErrUnreachable && answer.StatusCode <= http.StatusBadRequest:
		region := answer.Region
		if region == "" {
			region = seen.header.Get("X-Amz-Bucket-Region")
		}
		target, err := url.Parse(seen.header.Get("Location"))
		if err != nil {
			target = &url.URL{}
		}
		switch {
		case region != "":
			e.Tip = "the bucket is in another region: set region=" + b.creds.clean(region) +
				" in the --store URL"
			// Without a region given, minio-go has remembered this one.
			v.again, v.once = b.options.Region == "", true
		case target.Host != "":
			e.Tip = "the bucket is behind another endpoint: set endpoint=" + b.creds.clean(target.Scheme+
				"://"+target.Host) + " in the --store URL, if you trust that host"
		}
	}
}

func skew(d time.Duration) string {
	if d < 0 {
		return (-d).Round(time.Second).String() + " behind that of the storage server"
	}
	return d.Round(time.Second).String() + " ahead of that of the storage server"
}

// answerError is the text of an answer: the code, and what the server says without our credentials
// in it.
func (b *Bucket) answerError(answer minio.ErrorResponse) error {
	text := b.creds.clean(answer.Code)
	if answer.Message != "" && answer.Message != answer.Code {
		text += " (" + b.creds.clean(answer.Message) + ")"
	}
	return errors.New(text)
}

// judgeConnection is for requests that got no answer that could be read.
func (b *Bucket) judgeConnection(e *bucket.Error, err error, seen *attempt) verdict {
	if seen.err != nil && err != errTooSlow {
		err = seen.err // minio-go turns some of these into texts
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	e.Class = bucket.ErrUnreachable
	e.Err = &cleanError{text: b.creds.clean(err.Error()), err: err}
	_, noAuthority := errors.AsType[x509.UnknownAuthorityError](err)
	_, wrongHost := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case noAuthority:
		e.Tip = "the certificate of the storage server is not signed by an authority that this host " +
			"knows: give its certificate with ca-file= in the --store URL"
	case wrongHost:
		e.Tip = "the certificate of the storage server is for another name: use that name in endpoint="
	case isInvalid:
		e.Tip = fmt.Sprintf("the certificate of the storage server is not valid (%v): renew it, or "+
			"set the clock of this host", invalid)
	case notTLS || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.Tip = "the endpoint does not speak TLS: write endpoint=http://, or use its other port"
	case strings.Contains(err.Error(), "malformed HTTP response"):
		e.Tip = "the endpoint does not speak HTTP: check its port, and whether it expects https://"
	case isDNS && dns.IsNotFound:
		e.Tip = "there is no such host: check endpoint= in the --store URL"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Tip = "nothing listens there: check endpoint= in the --store URL, and whether the " +
			"storage server runs"
		return verdict{err: e, again: true, refused: true}
	default:
		return verdict{err: e, again: true}
	}
	return verdict{err: e}
}
