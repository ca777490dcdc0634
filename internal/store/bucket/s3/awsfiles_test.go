package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// fakeAWS is an S3 server, an STS and the role endpoints of a host, which remember who asked.
type fakeAWS struct {
	*httptest.Server

	mu      sync.Mutex
	signed  http.Header  // of the last request to S3
	asked   []url.Values // what STS was asked
	signers []string     // and with whose signature
	roles   []string     // paths of requests to the role endpoints
	sts     func(w http.ResponseWriter, form url.Values)
	lives   time.Duration // of what STS gives
}

func newFakeAWS(t *testing.T) *fakeAWS {
	t.Helper()
	f := &fakeAWS{lives: time.Hour}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	t.Setenv("AWS_ENDPOINT_URL_STS", f.URL+"/sts")
	return f
}

// ServeHTTP answers all of them; S3 denies what it is asked, so that one request is enough.
func (f *fakeAWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/sts"):
		if err := r.ParseForm(); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		f.asked = append(f.asked, r.PostForm)
		f.signers = append(f.signers, r.Header.Get("Authorization"))
		if f.sts != nil {
			f.sts(w, r.PostForm)
			return
		}
		action := r.PostForm.Get("Action")
		fmt.Fprintf(w, `<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult>`+
			`<Credentials><AccessKeyId>ASIAFROMSTS</AccessKeyId><SecretAccessKey>sts-secret`+
			`</SecretAccessKey><SessionToken>sts-token</SessionToken><Expiration>%s</Expiration>`+
			`</Credentials></%[1]sResult></%[1]sResponse>`, action,
			time.Now().Add(f.lives).UTC().Format(time.RFC3339))
	case strings.HasPrefix(r.URL.Path, "/latest/api/token"):
		f.roles = append(f.roles, r.URL.Path)
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
		fmt.Fprint(w, "imds")
	case strings.HasPrefix(r.URL.Path, "/latest/meta-data/"):
		f.roles = append(f.roles, r.URL.Path)
		if strings.HasSuffix(r.URL.Path, "/") {
			fmt.Fprint(w, "host-role")
			return
		}
		f.giveRole(w, "ASIAFROMHOST")
	case r.URL.Path == "/pod":
		f.roles = append(f.roles, r.URL.Path+" "+r.Header.Get("Authorization"))
		f.giveRole(w, "ASIAFROMPOD")
	default:
		f.signed = r.Header.Clone()
		answer(w, r, http.StatusForbidden, "AccessDenied")
	}
}

func (f *fakeAWS) giveRole(w http.ResponseWriter, key string) {
	fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":%q,"SecretAccessKey":"role-secret",`+
		`"Token":"role-token","Expiration":%q}`, key,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// use sends one request to S3 and returns the key that signed it, and its region.
func (f *fakeAWS) use(t *testing.T, o s3.Options) (key, region string, err error) {
	t.Helper()
	o.Bucket, o.Endpoint = "bucket", f.URL
	b, err := s3.New(o)
	if err != nil {
		return "", "", err
	}
	b.HurryRetries(time.Second, 5*time.Second)
	return f.ask(t.Context(), b)
}

func (f *fakeAWS) ask(ctx context.Context, b *s3.Bucket) (key, region string, err error) {
	f.signed = nil
	_, err = b.Get(ctx, "key")
	_, credential, _ := strings.Cut(f.signed.Get("Authorization"), "Credential=")
	parts := strings.Split(credential, "/")
	if len(parts) < 3 {
		return "", "", err
	}
	return parts[0], parts[2], err
}

func (f *fakeAWS) want(t *testing.T, o s3.Options, wantKey string) {
	t.Helper()
	key, _, err := f.use(t, o)
	if key != wantKey || !errors.Is(err, bucket.ErrDenied) {
		t.Errorf("signed by %q, want %q (%v)", key, wantKey, err)
	}
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAWebIdentityIsExchangedForCredentials: the variables that EKS sets are enough (IRSA), and the
// token is read again each time, since the kubelet replaces it.
func TestAWebIdentityIsExchangedForCredentials(t *testing.T) {
	home := withoutAWS(t)
	f := newFakeAWS(t)
	f.lives = time.Minute // less than the margin: each request asks for new ones
	token := write(t, filepath.Join(home, "token"), "first")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/backup")
	f.want(t, s3.Options{}, "ASIAFROMSTS")
	if f.signed.Get("X-Amz-Security-Token") != "sts-token" {
		t.Errorf("header %v, want the session token", f.signed)
	}
	write(t, token, "second")
	f.want(t, s3.Options{}, "ASIAFROMSTS")
	for i, want := range []string{"first", "second"} {
		got := f.asked[i]
		if got.Get("Action") != "AssumeRoleWithWebIdentity" || got.Get("WebIdentityToken") != want ||
			got.Get("RoleArn") != "arn:aws:iam::1:role/backup" || got.Get("RoleSessionName") != "mgmtd" ||
			f.signers[i] != "" {
			t.Errorf("STS was asked %v, signed %q", got, f.signers[i])
		}
	}
}

// TestAProfileAssumesItsRole: the source profile is in another file, as the AWS command line
// allows, or both are in the file of a location.
func TestAProfileAssumesItsRole(t *testing.T) {
	home := withoutAWS(t)
	f := newFakeAWS(t)
	base := "[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = base-secret\n"
	role := "role_arn = arn:aws:iam::1:role/backup\nsource_profile = base\nexternal_id = ours\n" +
		"region = eu-south-7\n"
	write(t, filepath.Join(home, ".aws", "credentials"), base)
	write(t, filepath.Join(home, ".aws", "config"), "[profile backup]\n"+role)
	one := write(t, filepath.Join(home, "one"), base+"[backup]\n"+role)
	for name, o := range map[string]s3.Options{"files of the user": {Profile: "backup"},
		"file of the location": {Profile: "backup", CredentialsFile: one}} {
		f.asked, f.signers = nil, nil
		key, region, err := f.use(t, o)
		if key != "ASIAFROMSTS" || region != "eu-south-7" {
			t.Errorf("%s: signed by %q for %q (%v)", name, key, region, err)
		}
		if len(f.asked) != 1 || f.asked[0].Get("RoleArn") != "arn:aws:iam::1:role/backup" ||
			f.asked[0].Get("ExternalId") != "ours" || f.asked[0].Get("Action") != "AssumeRole" ||
			!strings.Contains(f.signers[0], "Credential=AKIABASE/") {
			t.Errorf("%s: STS was asked %v, signed %q", name, f.asked, f.signers)
		}
	}
}

// TestAProfileOfALocationIsTheOnlySource: two locations with two profiles must not share the
// identity of the environment or of the host.
func TestAProfileOfALocationIsTheOnlySource(t *testing.T) {
	home := withoutAWS(t)
	f := newFakeAWS(t)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
	t.Setenv("AWS_SECRET_ACCESS_KEY", fakeSecret)
	t.Setenv("AWS_PROFILE", "")
	text := "[one]\naws_access_key_id = AKIAONE\naws_secret_access_key = s\n[default]\n" +
		"aws_access_key_id = AKIADEFAULT\naws_secret_access_key = s\n[empty]\nregion = eu-south-7\n" +
		"[half]\naws_access_key_id = AKIAHALF\n[orphan]\nrole_arn = arn:aws:iam::1:role/x\n" +
		"[lost]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = none\n"
	write(t, filepath.Join(home, ".aws", "credentials"), text)
	file := write(t, filepath.Join(home, "file"), text)
	f.want(t, s3.Options{}, "AKIAENVIRONMENT")
	f.want(t, s3.Options{Profile: "one"}, "AKIAONE")
	f.want(t, s3.Options{Profile: "one", CredentialsFile: file}, "AKIAONE")
	f.want(t, s3.Options{CredentialsFile: file}, "AKIADEFAULT")
	f.signed = nil
	for _, profile := range []string{"other", "empty", "half", "orphan", "lost"} {
		for _, file := range []string{"", file} {
			_, _, err := f.use(t, s3.Options{Profile: profile, CredentialsFile: file})
			usage, ok := errors.AsType[*bucket.UsageError](err)
			if !ok || !strings.Contains(err.Error(), profile) || usage.Hint() == "" || f.signed != nil {
				t.Errorf("profile %s: %v, want a *bucket.UsageError that names it, and no request", profile,
					err)
			}
		}
	}
	if len(f.roles) != 0 {
		t.Errorf("the role of the host was asked for: %v", f.roles)
	}
}

func TestTheRoleOfTheHostIsTheLastResort(t *testing.T) {
	home := withoutAWS(t)
	f := newFakeAWS(t)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f.URL)
	f.want(t, s3.Options{}, "ASIAFROMHOST")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f.URL+"/pod")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write(t, filepath.Join(home, "t"), "pod-token"))
	f.roles = nil
	f.want(t, s3.Options{}, "ASIAFROMPOD")
	if len(f.roles) != 1 || f.roles[0] != "/pod pod-token" {
		t.Errorf("asked %v, want the pod's endpoint with its token", f.roles)
	}
	write(t, filepath.Join(home, ".aws", "credentials"),
		"[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = s\n")
	f.want(t, s3.Options{}, "AKIADEFAULT")
}

// TestACredentialsFileThatIsReplacedIsFollowed: and one that is half written meanwhile stops
// nothing.
func TestACredentialsFileThatIsReplacedIsFollowed(t *testing.T) {
	home := withoutAWS(t)
	f := newFakeAWS(t)
	keys := func(name string) string {
		return "[default]\naws_access_key_id = " + name + "\naws_secret_access_key = s\n"
	}
	file := write(t, filepath.Join(home, "file"), keys("AKIAOLD"))
	b, err := s3.New(s3.Options{Bucket: "bucket", Endpoint: f.URL, CredentialsFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ text, want string }{{keys("AKIAOLD"), "AKIAOLD"},
		{"[default]\naws_access", "AKIAOLD"}, {keys("AKIANEW"), "AKIANEW"}} {
		write(t, file, step.text)
		b.ExpireCredentials()
		if key, _, err := f.ask(t.Context(), b); key != step.want {
			t.Errorf("with %q: signed by %q, want %q (%v)", step.text, key, step.want, err)
		}
	}
}

// TestRefusalsOfSTSSaySoWithoutSecrets: a role that may not be assumed is denied at once, an STS
// that is ill is tried again.
func TestRefusalsOfSTSSaySoWithoutSecrets(t *testing.T) {
	home := withoutAWS(t)
	f := newFakeAWS(t)
	token := "eyJhbGciOiJub25lIn0.eyJzdWIiOiJodW50ZXIyIn0.c2lnbmF0dXJl"
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write(t, filepath.Join(home, "token"), token))
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/backup")
	for _, tt := range []struct {
		status int
		code   string
		class  error
		again  bool
	}{{403, "AccessDenied", bucket.ErrDenied, false},
		{400, "InvalidIdentityToken", bucket.ErrDenied, false},
		{400, "IDPCommunicationError", bucket.ErrDenied, false},
		{503, "ServiceUnavailable", bucket.ErrUnreachable, true}} {
		f.asked = nil
		f.sts = func(w http.ResponseWriter, form url.Values) {
			w.WriteHeader(tt.status)
			fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>not for %s</Message></Error>"+
				"</ErrorResponse>", tt.code, form.Get("WebIdentityToken"))
		}
		_, _, err := f.use(t, s3.Options{})
		if !errors.Is(err, tt.class) || hintOf(err) == "" || strings.Contains(err.Error(), "eyJ") {
			t.Errorf("%s: %v (hint %q), want %v", tt.code, err, hintOf(err), tt.class)
		}
		if (len(f.asked) > 1) != tt.again {
			t.Errorf("%s: asked %d times, want again: %v", tt.code, len(f.asked), tt.again)
		}
	}
}

// TestRoleEndpointsAreNeverAskedThroughAProxy runs itself in a process whose environment names a
// proxy, since a process reads that once.
func TestRoleEndpointsAreNeverAskedThroughAProxy(t *testing.T) {
	if os.Getenv("MGMTD_TEST_CHILD") != "" {
		b, err := s3.New(s3.Options{Bucket: "bucket", Endpoint: "https://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		b.HurryRetries(time.Second, 5*time.Second)
		_, _ = b.Get(t.Context(), "key") // fails; what matters is who was asked
		return
	}
	for target, want := range map[string]bool{
		"http://169.254.169.254/latest": false, "http://169.254.170.2/v2": false,
		"https://169.254.170.23/v1": false, "http://[fd00:ec2::254]/latest": false,
		"https://[fd00:ec2::23]/v1": false, "http://imds.example.com/latest": false,
		"https://sts.eu-central-1.amazonaws.com/": true, "https://10.0.0.1/": true,
	} {
		if got, err := s3.ProxyForCredentials(target); err != nil || got != want {
			t.Errorf("%s through the proxy: %v, %v, want %v", target, got, err, want)
		}
	}
	withoutAWS(t)
	var mu sync.Mutex
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.URL.String())
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	// An address of nobody: the role of the host that runs the test is not to be asked for.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), "MGMTD_TEST_CHILD=1", "HTTP_PROXY="+proxy.URL,
		"http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=", "AWS_EC2_METADATA_DISABLED=",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://192.0.2.1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if len(seen) != 0 {
		t.Errorf("the proxy was asked for %v", seen)
	}
}
