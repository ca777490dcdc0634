// Package s3 stores a bucket in a bucket of an S3 server.
package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Options says where an S3 bucket is and how to reach it. Only Bucket is needed.
type Options struct {
	Bucket string
	// Prefix comes before every key, without slashes at its ends.
	Prefix string
	// Endpoint is "https://host:port" or "http://host:port"; empty means AWS.
	Endpoint string
	// Region is what requests are signed for. Empty means $AWS_REGION, then $AWS_DEFAULT_REGION, then
	// the region of the profile; then AWS is asked where the bucket is, and us-east-1 is taken
	// elsewhere.
	Region string
	// PathStyle puts the bucket into the path and not into the host name. It is so anyway where the
	// endpoint is not that of a large cloud.
	PathStyle bool
	// CAFile holds the certificates (PEM) to trust instead of those of the system: somebody who can
	// get a certificate from a public authority is not the store.
	CAFile string
	// CACert is the same as text; Velero's storage locations hold it so.
	CACert []byte
	// InsecureSkipTLSVerify accepts any certificate: a machine in the middle can then read and
	// change what is not encrypted and signed.
	InsecureSkipTLSVerify bool
	// ChecksumOff leaves out the header x-amz-checksum-sha256, for servers that do not know it.
	// Bytes are guarded by the signature all the same.
	ChecksumOff bool
	// CredentialsFile is an AWS credentials or configuration file, and the only place where
	// credentials come from. Empty means the usual environment variables, files and role endpoints.
	CredentialsFile string
	// Profile is a section of CredentialsFile, by default "default", or of the usual files. A
	// profile that is named comes before the environment.
	Profile string
	// ServerSideEncryption is how the storage encrypts what is written: EncryptionS3 or
	// EncryptionKMS. Empty leaves that to the bucket.
	ServerSideEncryption string
	// KMSKeyID is the key or alias for EncryptionKMS, which it implies.
	KMSKeyID string
	// CustomerKeyFile holds the 32 bytes of a key that the storage gets with each read and write, and
	// does not keep (SSE-C).
	CustomerKeyFile string
	// StorageClass is that of packs, shards and trees; empty means that of the bucket.
	StorageClass string
	// Tagging are tags of whatever is written, as key=value&key2=value2.
	Tagging string
	// ObjectLock makes the storage retain every key that is written for RetentionDays, except the
	// keys that change. The bucket must have been created with Object Lock.
	ObjectLock    LockMode
	RetentionDays int
}

// Bucket is a bucket.Bucket in a bucket of an S3 server, with all further abilities that the server
// has.
type Bucket struct {
	options Options
	client  *minio.Client
	creds   *credentialChain
	atRest  atRest
	retry   retryPolicy
	// holds one: whether the server supports conditional writes, nil while that is not known
	probed chan *bool
	// confirmed is set once this process knows by itself that conditions are honoured.
	confirmed atomic.Bool

	// whether the bucket is versioned, or may be; nil while that is not known
	versions  atomic.Pointer[bool]
	locks     atomic.Bool // whether the bucket was asked if it has Object Lock
	proved    atomic.Bool // whether a write that asked for retention was looked at afterwards
	unbatched atomic.Bool // whether the server does not know the deletion of many keys
}

var (
	_ bucket.Bucket          = (*Bucket)(nil)
	_ bucket.Conditional     = (*Bucket)(nil)
	_ bucket.Remover         = (*Bucket)(nil)
	_ bucket.BatchRemover    = (*Bucket)(nil)
	_ bucket.Repairer        = (*Bucket)(nil)
	_ bucket.Retainer        = (*Bucket)(nil)
	_ bucket.ConditionProber = (*Bucket)(nil)
)

const (
	awsEndpoint   = "https://s3.amazonaws.com"
	defaultRegion = "us-east-1"
)

// New checks the options and reads the files that they name. It sends nothing; the first request
// finds the credentials. *bucket.UsageError.
func New(o Options) (*Bucket, error) {
	o.Prefix = strings.Trim(o.Prefix, "/")
	if s3utils.CheckValidBucketName(o.Bucket) != nil {
		return nil, &bucket.UsageError{Text: "open S3 store: not the name of a bucket: " +
			quoted(o.Bucket),
			Tip: "write s3://bucket/prefix"}
	}
	if o.Prefix != "" && bucket.ValidateKey(o.Prefix) != nil {
		return nil, &bucket.UsageError{Text: "open S3 store: prefix " + quoted(o.Prefix) +
			" cannot be part of keys",
			Tip: "use letters, digits, \".\", \"_\" and \"-\", with \"/\" between"}
	}
	if err := o.checkRetention(); err != nil {
		return nil, err
	}
	endpoint, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	kept, err := newAtRest(&o, endpoint.Scheme == "https")
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(&o)
	if err != nil {
		return nil, err
	}
	creds := &credentialChain{secrets: kept.secret,
		aws: awsFiles{file: o.CredentialsFile, profile: o.Profile, region: defaultRegion}}
	if err := creds.aws.check(context.Background()); err != nil {
		return nil, err
	}
	region := regionOf(&o, endpoint, &creds.aws)
	if region != "" && s3utils.IsAmazonEndpoint(*endpoint) {
		creds.aws.region = region
	}
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: creds.provider(), Secure: endpoint.Scheme == "https",
		Transport: recordingTransport{transport},
		Region:    region, BucketLookup: lookup,
		// which means none: retries are ours, so that they end when we say and are seen in errors
		MaxRetries: 1,
	})
	if err != nil {
		return nil, &bucket.UsageError{Text: "open S3 store: endpoint " + quoted(o.Endpoint), Err: err}
	}
	b := &Bucket{options: o, client: client, creds: creds, atRest: kept, retry: defaultRetry(),
		probed: make(chan *bool, 1)}
	b.probed <- nil
	b.unbatched.Store(s3utils.IsGoogleEndpoint(*endpoint))
	return b, nil
}

// regionOf is what requests are signed for; empty means that AWS is asked. The region of a profile
// counts for AWS, and for other servers only where the profile is named for this store: they are in
// us-east-1 unless something says otherwise.
func regionOf(o *Options, endpoint *url.URL, files *awsFiles) string {
	amazon := s3utils.IsAmazonEndpoint(*endpoint)
	region := o.Region
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if region == "" {
			region = os.Getenv(name)
		}
	}
	if region == "" && (amazon || files.named() != "") {
		region = files.regionOf(context.Background())
	}
	if region == "" && !amazon {
		region = defaultRegion
	}
	return region
}

// parseEndpoint takes a scheme, a host and perhaps a port. No message quotes what may be a
// password.
func parseEndpoint(s string) (*url.URL, error) {
	if s == "" {
		s = awsEndpoint
	}
	const tip = "write endpoint=https://host:port, or http://host:port"
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, &bucket.UsageError{Text: "open S3 store: endpoint is not a URL", Tip: tip}
	case u.User != nil:
		return nil, &bucket.UsageError{Text: "open S3 store: endpoint holds credentials",
			Tip: tipCredentials}
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Contains(u.Host, "@"):
		return nil, &bucket.UsageError{Text: "open S3 store: endpoint is not http:// or " +
			"https:// and a host",
			Tip: tip}
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, &bucket.UsageError{Text: "open S3 store: endpoint has more than a host and a port",
			Tip: tip}
	}
	return u, nil
}

// newTransport makes connections that give up: a server that stops answering must not hold a
// snapshot up for ever.
func newTransport(o *Options) (*http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: o.InsecureSkipTLSVerify} //nolint:gosec // asked for in so many words
	if o.CAFile != "" || len(o.CACert) > 0 {
		pool := x509.NewCertPool()
		if o.CAFile != "" {
			pem, err := os.ReadFile(o.CAFile)
			if err != nil {
				return nil, &bucket.UsageError{Text: "open S3 store: read ca-file", Err: err}
			}
			if !pool.AppendCertsFromPEM(pem) {
				return nil, &bucket.UsageError{Text: "open S3 store: ca-file " + o.CAFile +
					" holds no certificate",
					Tip: "give a file of PEM certificates"}
			}
		}
		if len(o.CACert) > 0 && !pool.AppendCertsFromPEM(o.CACert) {
			return nil, &bucket.UsageError{Text: "open S3 store: the CA certificates given as text hold " +
				"no certificate", Tip: "give PEM certificates"}
		}
		config.RootCAs = pool
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second,
			KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       time.Minute,
		MaxIdleConns:          64,
		MaxIdleConnsPerHost:   64,   // as many as there are reads at once: a new one costs a handshake
		DisableCompression:    true, // bytes are hashed as they are stored
	}, nil
}

// String returns the URL of the store in the form that Open reads. There is no place for
// credentials in it.
func (b *Bucket) String() string {
	u := url.URL{Scheme: "s3", Host: b.options.Bucket}
	if b.options.Prefix != "" {
		u.Path = "/" + b.options.Prefix
	}
	var query []string
	add := func(name, value string) {
		if value != "" {
			query = append(query, name+"="+strings.NewReplacer("%3A", ":", "%2F",
				"/").Replace(url.QueryEscape(value)))
		}
	}
	add("endpoint", b.options.Endpoint)
	add("region", b.options.Region)
	if b.options.PathStyle {
		add("path-style", "true")
	}
	add("ca-file", b.options.CAFile)
	if b.options.ChecksumOff {
		add("checksum", "off")
	}
	add("profile", b.options.Profile)
	add("sse", b.options.ServerSideEncryption)
	add("kms-key-id", b.options.KMSKeyID)
	add("sse-c-file", b.options.CustomerKeyFile)
	add("storage-class", b.options.StorageClass)
	add("tagging", b.options.Tagging)
	add("object-lock", string(b.options.ObjectLock))
	if b.options.RetentionDays != 0 {
		add("retention-days", strconv.Itoa(b.options.RetentionDays))
	}
	u.RawQuery = strings.Join(query, "&")
	return u.String()
}

// key returns the name of a key in the S3 bucket.
func (b *Bucket) key(key string) string {
	if b.options.Prefix == "" {
		return key
	}
	return b.options.Prefix + "/" + key
}
