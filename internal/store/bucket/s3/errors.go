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

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// failure is a classified error of a request.
type failure struct {
	err     error
	retry   bool // another try may succeed
	once    bool // but only one more
	refused bool // nothing listens there
}

const (
	tipBusy = "the storage server answers, but only with errors: check its log, or " +
		"try again later"
	tipElsewhere = "the bucket is in another region or behind another endpoint: set region= and " +
		"endpoint= in the store's URL"
	tipNoBucket = "create the bucket on the storage server, or correct its name in the store's URL"
)

// tipKey returns the key of a hint of the table.
func tipKey(tip string) object.HintKey {
	if tip == tipElsewhere || tip == tipNoBucket {
		return object.HintStoreURL
	}
	return ""
}

// answers gives the error codes of S3 servers their class, their hint, and whether to try again.
// byStatus classifies all other codes.
var answers = []struct {
	codes []string
	class error
	tip   string
	again bool
}{
	{[]string{"NoSuchKey", "NoSuchVersion", "NotFound"}, bucket.ErrNotFound, "", false},
	{[]string{"NoSuchBucket"}, bucket.ErrStoreMissing, tipNoBucket, false},
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

// classifyError gives the error of a request its class and its hint, and decides about a retry.
func (b *Bucket) classifyError(op, key string, err error, seen *attempt) failure {
	if usage, ok := errors.AsType[*bucket.UsageError](err); ok {
		return failure{err: usage}
	}
	if refused, ok := errors.AsType[*credentialsError](err); ok {
		return failure{retry: refused.again, err: &bucket.Error{Op: op, Key: key, Class: refused.class,
			Err: errors.New(refused.text), Tip: refused.tip}}
	}
	e := &bucket.Error{Op: op, Key: key}
	answer := minio.ToErrorResponse(err)
	if answer.Code == "" {
		return b.classifyConnection(e, err, seen)
	}
	e.Err = b.answerError(answer)
	f := failure{err: e}
	known := false
	for _, a := range answers {
		if slices.Contains(a.codes, answer.Code) {
			e.Class, e.Tip, f.retry, known = a.class, a.tip, a.again, true
		}
	}
	if !known {
		f.retry = byStatus(e, answer)
	}
	e.TipKey = tipKey(e.Tip)
	b.refine(e, answer, seen, &f)
	b.refineEncryption(e, answer)
	return f
}

// byStatus classifies an answer with an unknown code by its HTTP status. again reports whether
// another try may succeed.
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

// refine improves the hint with details of this answer: the clock, the region, another endpoint.
func (b *Bucket) refine(e *bucket.Error, answer minio.ErrorResponse, seen *attempt, f *failure) {
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
			e.Tip, e.TipKey = "the bucket is in another region: set region="+b.creds.clean(region)+
				" in the store's URL", object.HintStoreURL
			// Without a region given, minio-go has remembered this one.
			f.retry, f.once = b.options.Region == "", true
		case target.Host != "":
			e.Tip, e.TipKey = "the bucket is behind another endpoint: set endpoint="+
				b.creds.clean(target.Scheme+"://"+target.Host)+" in the store's URL, if you trust that host",
				object.HintStoreURL
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

// classifyConnection is classifyError for a request without a readable answer.
func (b *Bucket) classifyConnection(e *bucket.Error, err error, seen *attempt) failure {
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
		e.Tip, e.TipKey = "the certificate of the storage server is not signed by an authority that "+
			"this host knows: give its certificate with ca-file= in the store's URL", object.HintStoreURL
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
		e.Tip, e.TipKey = "there is no such host: check endpoint= in the store's URL", object.HintStoreURL
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Tip, e.TipKey = "nothing listens there: check endpoint= in the store's URL, and whether the "+
			"storage server runs", object.HintStoreURL
		return failure{err: e, retry: true, refused: true}
	default:
		return failure{err: e, retry: true}
	}
	return failure{err: e}
}
