package s3

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"time"

	"github.com/mgmtd/mgmtd/internal/retry"
)

// HurryRetries makes an S3 bucket give up after total, for tests of what happens then.
func (b *Bucket) HurryRetries(total, attempt time.Duration) {
	b.retry = retryPolicy{
		backoff: retry.Backoff{First: time.Millisecond, Longest: 20 * time.Millisecond, Jitter: true},
		total:   total, refused: total / 4, attempt: attempt,
	}
}

// ExpireCredentials makes the next request look up its credentials once more.
func (b *Bucket) ExpireCredentials() {
	b.creds.mu.Lock()
	defer b.creds.mu.Unlock()
	b.creds.expires = time.Time{}
}

// TrustedRoots returns the authorities that a bucket with these options trusts; nil for those of
// the system.
func TrustedRoots(o Options) (*x509.CertPool, error) {
	t, err := newTransport(&o)
	if err != nil {
		return nil, err
	}
	return t.TLSClientConfig.RootCAs, nil
}

// ProxyForCredentials says whether credentials are asked for at target through a proxy that the
// environment names for everything.
func ProxyForCredentials(target string) (bool, error) {
	u, err := url.Parse(target)
	if err != nil {
		return false, err
	}
	proxy, err := proxyOf(func(*http.Request) (*url.URL, error) { return u, nil })(&http.Request{URL: u})
	return proxy != nil, err
}
