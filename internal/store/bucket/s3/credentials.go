package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

const tipCredentials = "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or " +
	"from ~/.aws/credentials and AWS_PROFILE"

// redacted is what stands for a secret in messages.
const redacted = "[redacted]"

// credentialChain finds credentials in the usual order and remembers them, so that a message in
// which a server sends them back can be cleaned.
type credentialChain struct {
	chain []credentials.Provider
	file  string // when only this file counts
	curr  credentials.Provider

	mu   sync.Mutex
	seen credentials.Value
}

var _ credentials.Provider = (*credentialChain)(nil)

func newCredentials(file, profile string) *credentialChain {
	if file != "" {
		return &credentialChain{file: file, chain: []credentials.Provider{&credentials.FileAWSCredentials{
			Filename: file, Profile: profile}}}
	}
	return &credentialChain{chain: []credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{Profile: profile},
		&credentials.IAM{},
	}}
}

// provider caches the credentials until they expire.
func (c *credentialChain) provider() *credentials.Credentials { return credentials.New(c) }

// Retrieve is RetrieveWithCredContext.
func (c *credentialChain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(
		nil)
}

// RetrieveWithCredContext takes the first credentials that there are. Without any it is an error
// and not an anonymous request, which a server answers with a "denied" that would mislead. The
// providers' errors are not passed on: the parser of credentials files quotes lines.
func (c *credentialChain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value,
	error) {
	if c.file != "" {
		f, err := os.Open(c.file)
		if err != nil {
			return credentials.Value{}, &bucket.UsageError{Text: "read S3 credentials file", Err: err}
		}
		if err := f.Close(); err != nil {
			return credentials.Value{}, &bucket.UsageError{Text: "read S3 credentials file", Err: err}
		}
	}
	// The role endpoints have fixed addresses where nothing listens outside of a cloud: do not wait
	// for them as long as for a store.
	local := &credentials.CredContext{Client: &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, DisableKeepAlives: true},
	}}
	if cc != nil {
		local.Endpoint = cc.Endpoint
	}
	for _, p := range c.chain {
		value, err := p.RetrieveWithCredContext(local)
		if err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
			continue
		}
		c.curr = p
		c.mu.Lock()
		c.seen = value
		c.mu.Unlock()
		return value, nil
	}
	if c.file != "" {
		return credentials.Value{}, &bucket.UsageError{Text: "read S3 credentials file " + c.file +
			": no complete credentials in it for this profile", Tip: "it needs a section with " +
			"aws_access_key_id and aws_secret_access_key"}
	}
	return credentials.Value{}, &bucket.UsageError{Text: "open S3 store: no credentials found",
		Tip: tipCredentials}
}

// IsExpired reports whether new credentials are needed.
func (c *credentialChain) IsExpired() bool { return c.curr == nil || c.curr.IsExpired() }

// clean takes the credentials in use out of a text, and whatever does not print.
func (c *credentialChain) clean(text string) string {
	c.mu.Lock()
	v := c.seen
	c.mu.Unlock()
	for _, secret := range []string{v.SecretAccessKey, v.SessionToken, v.AccessKeyID} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	const most = 400
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// cleanError has the identity of an error for errors.Is, and another text.
type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string { return e.text }

// Is finds what the error wraps, without giving out its text.
func (e *cleanError) Is(target error) bool { return errors.Is(e.err, target) }

func quoted(s string) string { return fmt.Sprintf("%.300q", s) }
