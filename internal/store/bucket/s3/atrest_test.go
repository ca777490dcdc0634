package s3_test

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// recordingS3 keeps objects in memory, knows conditions and Object Lock, and remembers requests.
type recordingS3 struct {
	*httptest.Server
	CAFile string

	mu       sync.Mutex
	objects  map[string][]byte
	requests []*http.Request
}

func newRecordingS3(t *testing.T) *recordingS3 {
	t.Helper()
	s := &recordingS3{objects: map[string][]byte{}, CAFile: filepath.Join(t.TempDir(), "ca.pem")}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(s.CAFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *recordingS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	body, _ := io.ReadAll(r.Body)
	fail := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
	}
	query := r.URL.Query()
	switch {
	case query.Has("object-lock"):
		_, _ = io.WriteString(w, "<ObjectLockConfiguration><ObjectLockEnabled>Enabled"+
			"</ObjectLockEnabled></ObjectLockConfiguration>")
		return
	case query.Has("retention"):
		return
	case query.Has("list-type"):
		_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
		return
	}
	found, there := s.objects[r.URL.Path]
	switch r.Method {
	case http.MethodPut:
		match := r.Header.Get("If-Match")
		switch {
		case r.Header.Get("If-None-Match") == "*" && there:
			fail(http.StatusPreconditionFailed, "PreconditionFailed")
		case match != "" && !there:
			fail(http.StatusNotFound, "NoSuchKey")
		case match != "" && strings.Trim(match, `"`) != tagOf(found):
			fail(http.StatusPreconditionFailed, "PreconditionFailed")
		default:
			s.objects[r.URL.Path] = body
			w.Header().Set("ETag", `"`+tagOf(body)+`"`)
		}
	case http.MethodGet, http.MethodHead:
		if !there {
			fail(http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", `"`+tagOf(found)+`"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		// retained, and not for long enough
		w.Header().Set("X-Amz-Object-Lock-Mode", "GOVERNANCE")
		w.Header().Set("X-Amz-Object-Lock-Retain-Until-Date",
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		w.Header().Set("Content-Length", fmt.Sprint(len(found)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(found)
		}
	}
}

func tagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// contentKey is the key of a pack that holds data.
func contentKey(data string) string {
	sum := sha256.Sum256([]byte(data))
	name := hex.EncodeToString(sum[:])
	return "packs/" + name[:2] + "/" + name + ".tar.zst"
}

// useAll sends each kind of request that reads or writes objects.
func useAll(t *testing.T, b *s3.Bucket) {
	t.Helper()
	ctx, pack := t.Context(), contentKey("pack")
	tag, err := b.PutIf(ctx, "owners/w.json", []byte("1"), "")
	if err == nil {
		_, err = b.PutIf(ctx, "owners/w.json", []byte("2"), tag)
	}
	_, statErr := b.Stat(ctx, pack)
	putErr := errors.Join(b.Put(ctx, pack, []byte("pack")), b.Put(ctx, "pins/a.json", []byte("pin")))
	_, _, taggedErr := b.GetTagged(ctx, "owners/w.json")
	_, retainErr := b.Retain(ctx, pack, layout.Key(pack).SHA256())
	r, getErr := b.Get(ctx, pack)
	if getErr == nil {
		_, getErr = io.ReadAll(r)
		_ = r.Close()
	}
	listErr := b.List(ctx, "", func(bucket.Info) error { return nil })
	if !errors.Is(statErr, bucket.ErrNotFound) {
		t.Fatal(statErr)
	}
	if err := errors.Join(err, putErr, taggedErr, retainErr, getErr, listErr); err != nil {
		t.Fatal(err)
	}
}

const (
	headerSSE      = "X-Amz-Server-Side-Encryption"
	headerKMSKey   = headerSSE + "-Aws-Kms-Key-Id"
	headerCustomer = headerSSE + "-Customer-Algorithm"
	headerKey      = headerSSE + "-Customer-Key"
	headerKeyMD5   = headerSSE + "-Customer-Key-Md5"
	headerClass    = "X-Amz-Storage-Class"
	headerTags     = "X-Amz-Tagging"
)

// TestEachRequestHasTheHeadersOfEncryptionClassAndTags: whatever writes an object asks for the
// encryption and the tags, content also for the storage class; a customer key goes with reads, too,
// and no other request has one of these headers.
func TestEachRequestHasTheHeadersOfEncryptionClassAndTags(t *testing.T) {
	key := "0123456789abcdef0123456789abcdef"
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := md5.Sum([]byte(key))
	customer := map[string]string{headerCustomer: "AES256",
		headerKey:    base64.StdEncoding.EncodeToString([]byte(key)),
		headerKeyMD5: base64.StdEncoding.EncodeToString(sum[:])}
	for name, tt := range map[string]struct {
		options              s3.Options
		write, content, read map[string]string
	}{
		"nothing": {},
		"SSE-S3": {options: s3.Options{ServerSideEncryption: "AES256"},
			write: map[string]string{headerSSE: "AES256"}},
		"SSE-KMS": {options: s3.Options{ServerSideEncryption: "aws:kms"},
			write: map[string]string{headerSSE: "aws:kms"}},
		"SSE-KMS with a key": {options: s3.Options{KMSKeyID: "alias/backup"},
			write: map[string]string{headerSSE: "aws:kms", headerKMSKey: "alias/backup"}},
		"SSE-C": {options: s3.Options{CustomerKeyFile: keyFile}, write: customer, read: customer},
		"storage class": {options: s3.Options{StorageClass: "STANDARD_IA"},
			content: map[string]string{headerClass: "STANDARD_IA"}},
		"tags": {options: s3.Options{Tagging: "team=a%20b&env=prod"},
			write: map[string]string{headerTags: "env=prod&team=a+b"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := newRecordingS3(t)
			tt.options.Endpoint, tt.options.CAFile = server.URL, server.CAFile
			tt.options.ObjectLock, tt.options.RetentionDays = s3.LockGovernance, 1
			useAll(t, openFake(t, tt.options))
			kinds := map[string]int{}
			for _, r := range server.requests {
				want := map[string]string{}
				kind := r.Method + " " + strings.Trim(r.URL.RawQuery, "=")
				object := r.URL.RawQuery == ""
				content := strings.Contains(r.URL.Path, "/packs/")
				if object && r.Method == http.MethodPut {
					merge(want, tt.write)
					if content {
						kind += "content"
						merge(want, tt.content)
					}
				} else if object {
					merge(want, tt.read)
				}
				kinds[kind]++
				for _, h := range []string{headerSSE, headerKMSKey, headerCustomer, headerKey, headerKeyMD5,
					headerClass, headerTags} {
					if got := r.Header.Get(h); got != want[h] {
						t.Errorf("%s %s: header %s is %q, want %q", kind, r.URL.Path, h, got, want[h])
					}
				}
			}
			for _, kind := range []string{"PUT ", "PUT content", "GET ", "HEAD ", "PUT retention",
				"GET object-lock"} {
				if kinds[kind] == 0 {
					t.Errorf("no request %q was sent: %v", kind, kinds)
				}
			}
		})
	}
}

func merge(to, from map[string]string) {
	for k, v := range from {
		to[k] = v
	}
}

func TestWrongEncryptionClassAndTagsAreRefused(t *testing.T) {
	dir := t.TempDir()
	good, short := filepath.Join(dir, "good"), filepath.Join(dir, "short")
	if err := errors.Join(os.WriteFile(good, []byte(strings.Repeat("k", 32)), 0o600),
		os.WriteFile(short, []byte(fakeToken), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]s3.Options{
		"encryption not known":      {ServerSideEncryption: "aes"},
		"KMS key with SSE-S3":       {ServerSideEncryption: "AES256", KMSKeyID: "k"},
		"customer key with KMS":     {CustomerKeyFile: good, KMSKeyID: "k"},
		"customer key with SSE-S3":  {CustomerKeyFile: good, ServerSideEncryption: "AES256"},
		"customer key without TLS":  {CustomerKeyFile: good, Endpoint: "http://host:1"},
		"short customer key":        {CustomerKeyFile: short},
		"customer key not there":    {CustomerKeyFile: filepath.Join(dir, "none")},
		"class that has to thaw":    {StorageClass: "DEEP_ARCHIVE"},
		"class with a line break":   {StorageClass: "STANDARD\n"},
		"tags without a value":      {Tagging: "a=b&&=c"},
		"more than ten tags":        {Tagging: strings.Repeat("k=v&", 11)},
		"tag with an odd character": {Tagging: "a=%zz"},
	} {
		o.Bucket = "bucket"
		_, err := s3.New(o)
		if usage, ok := errors.AsType[*bucket.UsageError](err); !ok || usage.Error() == "" {
			t.Errorf("%s: %v, want *bucket.UsageError", name, err)
		}
		wantNoSecret(t, err)
	}
}

// TestRefusedEncryptionSaysSo: the answers of servers to a wrong key say what is to be corrected,
// and never show the key.
func TestRefusedEncryptionSaysSo(t *testing.T) {
	key := strings.Repeat("hunter2-", 4)
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		options       s3.Options
		status        int
		code, message string
		hint          string
	}{
		"KMS denied": {s3.Options{KMSKeyID: "k"}, 403, "AccessDenied",
			"not authorized to perform: kms:GenerateDataKey", "kms:Decrypt"},
		"KMS key disabled": {s3.Options{}, 400, "KMS.DisabledException", "is disabled", "kms:Decrypt"},
		"another customer key": {s3.Options{CustomerKeyFile: keyFile}, 403, "AccessDenied",
			"Access Denied " + key, "another customer key"},
		"stored without a key": {s3.Options{CustomerKeyFile: keyFile}, 400, "InvalidRequest",
			"The encryption parameters are not applicable to this object.", "another customer key"},
		"stored with a key": {s3.Options{}, 400, "InvalidRequest",
			"The object was stored using a form of Server Side Encryption.", "sse-c-file="},
		"tags denied": {s3.Options{Tagging: "a=b"}, 403, "AccessDenied", "no", "PutObjectTagging"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				if name == "tags denied" && r.Method == http.MethodGet {
					w.Header().Set("ETag", `"1"`)
					w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
					_, _ = io.WriteString(w, `{"format":1,"conditional":"yes"}`)
					return
				}
				w.WriteHeader(tt.status)
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", tt.code, tt.message)
			}))
			defer server.Close()
			tt.options.Endpoint, tt.options.InsecureSkipTLSVerify = server.URL, true
			b := openFake(t, tt.options)
			err := b.Put(t.Context(), "key", []byte("x"))
			if !errors.Is(err, bucket.ErrDenied) || !strings.Contains(hintOf(err), tt.hint) ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v (hint %q), want ErrDenied and hint %q", err, hintOf(err), tt.hint)
			}
			if _, err := b.Stat(t.Context(), "key"); name == "another customer key" &&
				(!errors.Is(err, bucket.ErrDenied) || !strings.Contains(hintOf(err), tt.hint)) {
				t.Errorf("stat: %v (hint %q)", err, hintOf(err))
			}
		})
	}
}

// TestACAFileIsTheOnlyAuthority: a certificate that a public authority gave to somebody else does
// not pass for the store's.
func TestACAFileIsTheOnlyAuthority(t *testing.T) {
	server := newRecordingS3(t)
	text, err := os.ReadFile(server.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	want := x509.NewCertPool()
	want.AddCert(server.Certificate())
	for name, o := range map[string]s3.Options{"file": {CAFile: server.CAFile}, "text": {CACert: text},
		"both": {CAFile: server.CAFile, CACert: text}} {
		if got, err := s3.TrustedRoots(o); err != nil || !want.Equal(got) {
			t.Errorf("%s: trusted is not the given authority alone: %v", name, err)
		}
	}
	if got, err := s3.TrustedRoots(s3.Options{}); err != nil || got != nil {
		t.Errorf("nothing given: %v, %v, want the authorities of the system", got, err)
	}
}

// TestTheURLOfAStoreNamesEachOption: what Open reads is what String writes.
func TestTheURLOfAStoreNamesEachOption(t *testing.T) {
	withoutAWS(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	config := filepath.Join(dir, "config")
	if err := errors.Join(os.WriteFile(file, []byte(strings.Repeat("k", 32)), 0o600),
		os.WriteFile(config, []byte("[profile p]\naws_access_key_id=a\naws_secret_access_key=b\n"),
			0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONFIG_FILE", config)
	for _, in := range []string{
		"s3://bucket?profile=p&sse=aws:kms&kms-key-id=alias/a",
		"s3://bucket?sse-c-file=" + file + "&storage-class=STANDARD_IA&tagging=a%3Db%26c%3Dd",
	} {
		b, err := s3.Open(in)
		if err != nil || b.String() != in {
			t.Errorf("%v, %v, want %s", b, err, in)
		}
	}
	if _, err := s3.Open("s3://bucket?profile=other"); err == nil {
		t.Error("a profile that does not exist was taken")
	}
}
