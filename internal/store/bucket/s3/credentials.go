package s3

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

const tipCredentials = "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or " +
	"from ~/.aws/credentials and AWS_PROFILE"

// redacted is what stands for a secret in messages.
const redacted = "[redacted]"

// reread is how long keys without an end are used before they are looked up again, so that a
// daemon follows a credentials file that is replaced.
const reread = 5 * time.Minute

// credentialsTimeout ends the search for credentials: the role endpoints have fixed addresses where
// nothing listens outside of a cloud.
const credentialsTimeout = 20 * time.Second

// credentialChain finds credentials as the AWS command line does, and remembers them, so that a
// message in which a server sends them back can be cleaned.
type credentialChain struct {
	aws     awsFiles
	secrets []string // what else no message may show

	mu      sync.Mutex
	seen    credentials.Value
	keys    []string  // of the profiles on the way to the credentials
	expires time.Time // when new ones are needed; zero before the first
	forever bool      // whether seen has no end of its own
}

var _ credentials.Provider = (*credentialChain)(nil)

// provider caches the credentials until they expire.
func (c *credentialChain) provider() *credentials.Credentials { return credentials.New(c) }

// Retrieve is RetrieveWithCredContext.
func (c *credentialChain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(nil)
}

// RetrieveWithCredContext takes the first credentials that there are. Without any it is an error
// and not an anonymous request, which a server answers with a "denied" that would mislead. The
// errors are those of awsFiles.retrieve. Keys without an end outlive a file that is being replaced:
// the server knows whether they are still good.
func (c *credentialChain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value,
	error) {
	ctx := context.Background()
	if cc != nil && cc.Context != nil {
		ctx = cc.Context
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	found, keys, err := c.aws.retrieve(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = append(c.keys[:0:0], keys...)
	now := time.Now()
	switch {
	case err != nil && c.forever:
		c.expires = now.Add(reread)
		return c.seen, nil
	case err != nil:
		if failed, ok := errors.AsType[*credentialsError](err); ok {
			failed.text = c.cleanLocked(failed.text)
		}
		return credentials.Value{}, err
	}
	c.seen = credentials.Value{AccessKeyID: found.AccessKeyID,
		SecretAccessKey: found.SecretAccessKey, SessionToken: found.SessionToken,
		SignerType: credentials.SignatureV4}
	c.forever, c.expires = !found.CanExpire, now.Add(reread)
	if found.CanExpire {
		c.expires = found.Expires.Add(-expiryMargin)
	}
	return c.seen, nil
}

// expiryMargin is how long before their end credentials are replaced, at the latest: no request
// that began with them may still be under way then.
const expiryMargin = 2 * time.Minute

// IsExpired reports whether new credentials are needed.
func (c *credentialChain) IsExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !time.Now().Before(c.expires)
}

// clean takes the credentials in use out of a text, and whatever does not print.
func (c *credentialChain) clean(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cleanLocked(text)
}

// jwt is a web identity token, which this process does not keep.
var jwt = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]*`)

func (c *credentialChain) cleanLocked(text string) string {
	text = jwt.ReplaceAllString(text, redacted)
	v := c.seen
	for _, secret := range slices.Concat([]string{v.SecretAccessKey, v.SessionToken, v.AccessKeyID},
		c.keys, c.secrets) {
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
