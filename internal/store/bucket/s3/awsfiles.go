package s3

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/smithy-go/logging"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// awsFiles finds credentials with the SDK of AWS: profiles that assume roles, web identities and
// role endpoints then mean what they mean to the AWS command line and to Velero.
type awsFiles struct {
	file    string // when only this file counts
	profile string // the one that is named; empty for the usual order
	region  string // for STS, where neither environment nor profile have one
}

// sessionName is what the trail of AWS shows of a role that was assumed for a store.
const sessionName = "mgmtd"

// named returns the profile that alone counts, which may be none.
func (a *awsFiles) named() string {
	if a.profile == "" && a.file != "" {
		return config.DefaultSharedConfigProfile
	}
	return a.profile
}

// paths returns the files. The SDK reads $HOME once, when a process begins.
func (a *awsFiles) paths() (configs, secrets []string) {
	if a.file != "" {
		// A credentials file may hold what belongs into a configuration file, and the other way round,
		// as with Velero.
		return []string{a.file}, []string{a.file}
	}
	either := func(name, usual string) []string {
		if v := os.Getenv(name); v != "" {
			return []string{v}
		}
		return []string{usual}
	}
	return either("AWS_CONFIG_FILE", config.DefaultSharedConfigFilename()),
		either("AWS_SHARED_CREDENTIALS_FILE", config.DefaultSharedCredentialsFilename())
}

// section reads a profile. *bucket.UsageError, with no text of the parser, which quotes lines.
func (a *awsFiles) section(ctx context.Context, profile string) (config.SharedConfig, error) {
	if a.file != "" {
		f, err := os.Open(a.file)
		if err != nil {
			return config.SharedConfig{}, &bucket.UsageError{Text: "read S3 credentials file", Err: err}
		}
		if err := f.Close(); err != nil {
			return config.SharedConfig{}, &bucket.UsageError{Text: "read S3 credentials file", Err: err}
		}
	}
	files := func(o *config.LoadSharedConfigOptions) {
		o.ConfigFiles, o.CredentialsFiles = a.paths()
		o.Logger = logging.Nop{}
	}
	found, err := config.LoadSharedConfigProfile(ctx, profile, files)
	if err != nil {
		return config.SharedConfig{}, a.profileError(profile, err)
	}
	return found, nil
}

// check makes sure that a profile that is named is there and says where its credentials come from:
// without that, the SDK would take those of the host's role. *bucket.UsageError.
func (a *awsFiles) check(ctx context.Context) error {
	profile := a.named()
	if profile == "" {
		return nil
	}
	p, err := a.section(ctx, profile)
	switch {
	case err != nil:
		return err
	case p.Source != nil, p.Credentials.HasKeys(), p.CredentialSource != "", p.CredentialProcess != "",
		p.WebIdentityTokenFile != "", p.SSOSessionName != "", p.SSOStartURL != "", p.LoginSession != "":
		return nil
	}
	return &bucket.UsageError{Text: "open S3 store: no complete credentials in profile " +
		quoted(profile) + a.where(), Tip: "it needs aws_access_key_id and aws_secret_access_key, or " +
		"role_arn with source_profile, credential_source or web_identity_token_file"}
}

// where names the file, if it is one.
func (a *awsFiles) where() string {
	if a.file != "" {
		return " of file " + a.file
	}
	return ""
}

// regionOf is the region of the profile, where it can be read.
func (a *awsFiles) regionOf(ctx context.Context) string {
	profile := a.named()
	if profile == "" {
		profile = os.Getenv("AWS_PROFILE")
	}
	if profile == "" {
		profile = config.DefaultSharedConfigProfile
	}
	p, err := a.section(ctx, profile)
	if err != nil {
		return ""
	}
	return p.Region
}

// retrieve returns credentials, and the keys on the way to them that no message may show.
// *bucket.UsageError, *credentialsError.
func (a *awsFiles) retrieve(ctx context.Context) (found aws.Credentials, keys []string, err error) {
	if err := a.check(ctx); err != nil {
		return aws.Credentials{}, nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, a.options()...)
	if err != nil {
		return aws.Credentials{}, nil, a.profileError(a.profile, err)
	}
	var configured bool
	for _, source := range cfg.ConfigSources {
		switch source := source.(type) {
		case config.EnvConfig:
			keys = append(keys, source.Credentials.SecretAccessKey, source.Credentials.SessionToken,
				source.Credentials.AccessKeyID)
			configured = configured || source.WebIdentityTokenFilePath != "" ||
				source.ContainerCredentialsEndpoint != "" || source.ContainerCredentialsRelativePath != ""
		case config.SharedConfig:
			for p := &source; p != nil; p = p.Source {
				keys = append(keys, p.Credentials.SecretAccessKey, p.Credentials.SessionToken,
					p.Credentials.AccessKeyID)
				configured = configured || p.RoleARN != "" || p.CredentialProcess != "" ||
					p.SSOSessionName != "" || p.SSOStartURL != ""
			}
		}
	}
	found, err = cfg.Credentials.Retrieve(ctx)
	if err == nil && !found.HasKeys() {
		err = errors.New("no keys")
	}
	if err != nil {
		return aws.Credentials{}, keys, retrieveError(err, configured)
	}
	return found, keys, nil
}

// options are those of the SDK. It does not retry and does not log: the request that needs the
// credentials is tried again.
func (a *awsFiles) options() []func(*config.LoadOptions) error {
	client := newAWSClient()
	configs, secrets := a.paths()
	options := []func(*config.LoadOptions) error{
		config.WithSharedConfigFiles(configs), config.WithSharedCredentialsFiles(secrets),
		config.WithDefaultRegion(a.region), config.WithHTTPClient(client),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithLogger(logging.Nop{}), config.WithLogConfigurationWarnings(false),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = client }),
		config.WithAssumeRoleCredentialOptions(func(o *stscreds.AssumeRoleOptions) {
			if o.RoleSessionName == "" {
				o.RoleSessionName = sessionName
			}
		}),
		config.WithWebIdentityRoleCredentialOptions(func(o *stscreds.WebIdentityRoleOptions) {
			if o.RoleSessionName == "" {
				o.RoleSessionName = sessionName
			}
		}),
	}
	if profile := a.named(); profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	return options
}

// newAWSClient is what credentials are asked for with. It honours AWS_CA_BUNDLE.
func newAWSClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = 2 * time.Second }).
		WithTransportOptions(func(t *http.Transport) {
			t.Proxy = proxyOf(http.ProxyFromEnvironment)
			t.DisableKeepAlives = true
		})
}

// proxyOf keeps the role endpoints away from a proxy, which would see the credentials of the host
// or could answer with its own. They are the ones without TLS, and those with an address of this
// link.
func proxyOf(usual func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		ip := net.ParseIP(r.URL.Hostname())
		if r.URL.Scheme != "https" || ip.IsLinkLocalUnicast() || ip.IsPrivate() && ip.To4() == nil {
			return nil, nil
		}
		return usual(r)
	}
}
