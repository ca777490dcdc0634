package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// What must never be in a message.
const (
	fakeKey    = "AKIAFAKEFAKEFAKE"
	fakeSecret = "hunter2/hunter2+hunter2"
	fakeToken  = "session-token-session-token"
)

func fakeCredentials(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n"+
		"aws_session_token=%s\n", fakeKey, fakeSecret, fakeToken)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// wantNoSecret fails when an error, its hint or what it wraps holds credentials.
func wantNoSecret(t *testing.T, err error) {
	t.Helper()
	text := fmt.Sprintf("%v %+v %#v", err, err, err)
	if h, ok := err.(interface{ Hint() string }); ok {
		text += h.Hint()
	}
	for _, secret := range []string{fakeKey, fakeSecret, fakeToken, "AKIATESTACCESSKEY",
		"test-secret-"} {
		if strings.Contains(text, secret) {
			t.Errorf("credentials in an error: %s", text)
		}
	}
}

func hintOf(err error) string {
	if h, ok := errors.AsType[*bucket.Error](err); ok {
		return h.Hint()
	}
	if h, ok := errors.AsType[*bucket.UsageError](err); ok {
		return h.Hint()
	}
	return ""
}

// fakeS3 is a bucket on a server that answers with handler.
func fakeS3(t *testing.T, handler http.HandlerFunc) *s3.Bucket {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return openFake(t, s3.Options{Endpoint: s.URL})
}

func openFake(t *testing.T, o s3.Options) *s3.Bucket {
	t.Helper()
	o.Bucket, o.CredentialsFile = "bucket", fakeCredentials(t)
	b, err := s3.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.HurryRetries(time.Second, 5*time.Second)
	return b
}

// answer writes an S3 error, which sends back all that was in the request, as no server should.
func answer(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s of %s %s "+
		"%s</Message><AWSAccessKeyId>%s</AWSAccessKeyId></Error>",
		code, code, fakeKey, r.Header.Get("X-Amz-Security-Token"), fakeSecret, fakeKey)
}

func TestAnswersOfServersHaveClassAndHint(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		code   string
		header map[string]string
		class  error
		hint   string
		again  bool // whether it is asked more than once
	}{
		{"denied", 403, "AccessDenied", nil, bucket.ErrDenied, "lack rights", false},
		{"key not known", 403, "InvalidAccessKeyId", nil, bucket.ErrDenied,
			"does not take these credentials", false},
		{"wrong secret", 403, "SignatureDoesNotMatch", nil, bucket.ErrDenied,
			"does not take these credentials", false},
		{"token expired", 400, "ExpiredToken", nil, bucket.ErrDenied, "session token", false},
		{"another 403", 403, "Nonsense", nil, bucket.ErrDenied, "AWS_ACCESS_KEY_ID", false},
		{"no bucket", 404, "NoSuchBucket", nil, bucket.ErrStoreMissing, "create the bucket", false},
		{"no key", 404, "NoSuchKey", nil, bucket.ErrNotFound, "", false},
		{"clock behind", 403, "RequestTimeTooSkewed",
			map[string]string{"Date": time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat)},
			bucket.ErrDenied, "behind that of the storage server", false},
		{"clock ahead", 403, "RequestTimeTooSkewed",
			map[string]string{"Date": time.Now().Add(-2 * time.Hour).UTC().Format(http.TimeFormat)},
			bucket.ErrDenied, "it is 2h0m", false},
		{"other region", 301, "PermanentRedirect", map[string]string{"X-Amz-Bucket-Region": "eu-south-7"},
			bucket.ErrUnreachable, "region=eu-south-7", true},
		{"other region by signature", 400, "AuthorizationHeaderMalformed",
			map[string]string{"X-Amz-Bucket-Region": "eu-south-7"}, bucket.ErrUnreachable,
			"region=eu-south-7", true},
		{"other endpoint", 307, "TemporaryRedirect",
			map[string]string{"Location": "https://other.example.com/bucket/key"}, bucket.ErrUnreachable,
			"endpoint=https://other.example.com", false},
		{"redirect to somewhere", 302, "", nil, bucket.ErrUnreachable, "endpoint=", false},
		{"full", 507, "InsufficientStorage", nil, bucket.ErrNoSpace, "make room", false},
		{"full without a code", 507, "", nil, bucket.ErrNoSpace, "make room", false},
		{"quota", 403, "QuotaExceeded", nil, bucket.ErrNoSpace, "make room", false},
		{"slow down", 503, "SlowDown", nil, bucket.ErrUnreachable, "check its log", true},
		{"internal error", 500, "InternalError", nil, bucket.ErrUnreachable, "check its log", true},
		{"bad gateway of a proxy", 502, "", nil, bucket.ErrUnreachable, "check its log", true},
		{"too many requests", 429, "Nonsense", nil, bucket.ErrUnreachable, "check its log", true},
		{"request timeout", 400, "RequestTimeout", nil, bucket.ErrUnreachable, "check its log", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			b := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				for name, value := range tt.header {
					w.Header().Set(name, value)
				}
				if tt.code == "" {
					w.WriteHeader(tt.status)
					return
				}
				answer(w, r, tt.status, tt.code)
			})
			_, err := b.Get(t.Context(), "key")
			if !errors.Is(err, tt.class) || !strings.Contains(hintOf(err), tt.hint) {
				t.Errorf("%v (hint %q), want class %v and hint %q", err, hintOf(err), tt.class, tt.hint)
			}
			wantNoSecret(t, err)
			if n := requests.Load(); (n > 1) != tt.again {
				t.Errorf("%d requests, want more than one: %v", n, tt.again)
			}
			err = b.List(t.Context(), "", func(bucket.Info) error { return nil })
			if tt.class != bucket.ErrNotFound && !errors.Is(err, tt.class) {
				t.Errorf("list: %v, want class %v", err, tt.class)
			}
			wantNoSecret(t, err)
			putErr := b.Put(t.Context(), "key", []byte("x"))
			if putErr == nil {
				t.Error("put succeeded")
			}
			wantNoSecret(t, putErr)
		})
	}
}

func TestUnreachableServersHaveAHint(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, tt := range map[string]struct{ endpoint, hint string }{
		"nothing listens": {closed.URL, "nothing listens there"},
		// a resolver may not answer at all
		"no such host":        {"http://no-such-host.invalid:9000", ""},
		"authority not known": {secure.URL, "ca-file="},
		"TLS to a plain server": {"https://" + strings.TrimPrefix(plain.URL, "http://"),
			"does not speak TLS"},
		"plain text to TLS server": {"http://" + strings.TrimPrefix(secure.URL, "https://"), "https://"},
	} {
		t.Run(name, func(t *testing.T) {
			b := openFake(t, s3.Options{Endpoint: tt.endpoint})
			_, err := b.Stat(t.Context(), "key")
			if name == "plain text to TLS server" {
				_, err = b.Get(t.Context(), "key") // the answer to HEAD has no text
			}
			if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(hintOf(err), tt.hint) {
				t.Errorf("%v (hint %q), want ErrUnreachable and hint %q", err, hintOf(err), tt.hint)
			}
			wantNoSecret(t, err)
		})
	}
	skip := openFake(t, s3.Options{Endpoint: secure.URL, InsecureSkipTLSVerify: true})
	if _, err := skip.Stat(t.Context(), "key"); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("without verifying TLS: %v, want ErrNotFound", err)
	}
}

// TestCancelEndsRetries: a cancelled context ends the wait between two tries.
func TestCancelEndsRetries(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		answer(w, r, 503, "SlowDown")
	})
	b.HurryRetries(time.Hour, time.Hour)
	if _, err := b.Get(ctx, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v, want context.Canceled", err)
	}
}

// TestSilentServerIsGivenUp: a client gives up a server that accepts a request and never answers;
// that is no interrupt.
func TestSilentServerIsGivenUp(t *testing.T) {
	end := make(chan struct{})
	b := fakeS3(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(end) })
	b.HurryRetries(200*time.Millisecond, 50*time.Millisecond)
	_, err := b.Get(t.Context(), "key")
	if !errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get: %v, want ErrUnreachable alone", err)
	}
}

func TestCredentialsComeFromTheUsualPlacesAndNeverShow(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		answer(w, r, 403, "AccessDenied")
	}))
	defer server.Close()
	open := func(file, profile string) error {
		b, err := s3.New(s3.Options{Bucket: "bucket", Endpoint: server.URL,
			CredentialsFile: file, Profile: profile})
		got = nil
		if err != nil {
			wantNoSecret(t, err)
			return err
		}
		_, err = b.Get(t.Context(), "key")
		wantNoSecret(t, err)
		return err
	}
	home := withoutAWS(t)
	usage := func(name string, err error) {
		t.Helper()
		if _, ok := errors.AsType[*bucket.UsageError](err); !ok || got != nil {
			t.Errorf("%s: %v, want a *UsageError and no request", name, err)
		}
	}
	usage("none", open("", ""))
	usage("file not there", open(filepath.Join(home, "none"), ""))
	file := fakeCredentials(t)
	usage("profile not there", open(file, "other"))
	broken := filepath.Join(home, "broken")
	if err := os.WriteFile(broken, []byte("[default]\naws_access_key_id="+fakeKey+"\n"+fakeSecret+
		"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	usage("broken file", open(broken, ""))

	signed := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, bucket.ErrDenied) || got.Get("X-Amz-Security-Token") != fakeToken ||
			!strings.Contains(got.Get("Authorization"), "Credential="+fakeKey+"/") {
			t.Errorf("%s: %v, header %v, want signed with key and token", name, err, got)
		}
	}
	signed("file", open(file, ""))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	signed("file of the environment", open("", ""))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", fakeKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", fakeSecret)
	t.Setenv("AWS_SESSION_TOKEN", fakeToken)
	signed("environment", open("", ""))
	b := openFake(t, s3.Options{Endpoint: server.URL})
	if text := fmt.Sprintf("%v %s", b, b.String()); strings.Contains(text, fakeSecret) ||
		strings.Contains(text, fakeToken) || strings.Contains(text, fakeKey) {
		t.Errorf("credentials in the name: %s", text)
	}
}

// withoutAWS lets nothing of this host count, and role endpoints not be asked. It returns the new
// $HOME.
func withoutAWS(t *testing.T) string {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return home
}

func TestRequestsAreAsServersExpect(t *testing.T) {
	for name, tt := range map[string]struct {
		options  s3.Options
		path     string
		checksum bool
		region   string
	}{
		"defaults": {s3.Options{}, "/bucket/key", true, "us-east-1"},
		"prefix":   {s3.Options{Prefix: "/a/b/"}, "/bucket/a/b/key", true, "us-east-1"},
		"no checksum": {s3.Options{ChecksumOff: true, PathStyle: true}, "/bucket/key", false,
			"us-east-1"},
		"other region": {s3.Options{Region: "eu-south-7"}, "/bucket/key", true, "eu-south-7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_REGION", "")
			t.Setenv("AWS_DEFAULT_REGION", "")
			var put *http.Request
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet { // what the server can do
					w.Header().Set("ETag", `"1"`)
					w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
					_, _ = io.WriteString(w, `{"format":1,"conditional":"yes"}`)
					return
				}
				put = r.Clone(context.Background())
				w.Header().Set("ETag", `"1"`)
			}))
			defer s.Close()
			tt.options.Endpoint = s.URL
			b := openFake(t, tt.options)
			if err := b.Put(t.Context(), "key", []byte("x")); err != nil {
				t.Fatal(err)
			}
			if put.URL.Path != tt.path || put.Header.Get("If-None-Match") != "*" || put.ContentLength != 1 {
				t.Errorf("put %s, %v", put.URL.Path, put.Header)
			}
			if sum := put.Header.Get("X-Amz-Checksum-Sha256"); (sum != "") != tt.checksum {
				t.Errorf("checksum header %q", sum)
			}
			if !strings.Contains(put.Header.Get("Authorization"), "/"+tt.region+"/s3/") {
				t.Errorf("signed %q, want region %s", put.Header.Get("Authorization"), tt.region)
			}
		})
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]s3.Options{
		"no bucket":              {},
		"bad bucket":             {Bucket: "Not_A_Bucket/"},
		"bad prefix":             {Bucket: "bucket", Prefix: "a//b"},
		"endpoint with password": {Bucket: "bucket", Endpoint: "http://user:" + fakeToken + "@host"},
		"no certificate":         {Bucket: "bucket", CAFile: empty},
		"lock without days":      {Bucket: "bucket", ObjectLock: s3.LockGovernance},
		"days without lock":      {Bucket: "bucket", RetentionDays: 3},
		"too many days": {Bucket: "bucket", ObjectLock: s3.LockCompliance,
			RetentionDays: 40000},
		"lock not known": {Bucket: "bucket", ObjectLock: "GOVERNANCE", RetentionDays: 3},
	} {
		_, err := s3.New(o)
		if _, ok := errors.AsType[*bucket.UsageError](err); !ok {
			t.Errorf("%s: %v, want *UsageError", name, err)
		}
		wantNoSecret(t, err)
	}
}
