package s3

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

const tipURL = "use s3://bucket/prefix?endpoint=https://host:port"

// texts are the options of a URL that New checks, with their fields.
var texts = map[string]func(o *Options) *string{
	"ca-file":       func(o *Options) *string { return &o.CAFile },
	"profile":       func(o *Options) *string { return &o.Profile },
	"sse":           func(o *Options) *string { return &o.ServerSideEncryption },
	"kms-key-id":    func(o *Options) *string { return &o.KMSKeyID },
	"sse-c-file":    func(o *Options) *string { return &o.CustomerKeyFile },
	"storage-class": func(o *Options) *string { return &o.StorageClass },
	"tagging":       func(o *Options) *string { return &o.Tagging },
}

// Open returns the bucket at "s3://bucket/prefix", with the options of docs/config.md in its query.
// *bucket.UsageError; it does not wrap the errors of the URL parser, which quote the URL.
func Open(s string) (bucket.Bucket, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, &bucket.UsageError{Text: "parse store URL: not a URL", Tip: tipURL}
	}
	if u.User != nil {
		return nil, &bucket.UsageError{Text: "parse store URL: it holds credentials", Tip: tipCredentials}
	}
	if u.Fragment != "" || u.Port() != "" {
		return nil, &bucket.UsageError{Text: "parse store URL: it has a port or a fragment", Tip: tipURL}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, &bucket.UsageError{Text: "parse store URL: its options cannot be read", Tip: tipURL}
	}
	o := Options{Bucket: u.Host, Prefix: u.Path}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) != 1 {
			return nil, &bucket.UsageError{Text: "parse store URL: option " + name + " is given twice"}
		}
		if err := o.set(name, query[name][0]); err != nil {
			return nil, err
		}
	}
	b, err := New(o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// set takes one option of a URL.
func (o *Options) set(name, value string) error {
	wrong := func(tip string) error {
		return &bucket.UsageError{Text: "parse store URL: option " + name +
			" has a value that is not known",
			Tip: tip}
	}
	if field, ok := texts[name]; ok {
		*field(o) = value
		return nil
	}
	switch name {
	case "endpoint":
		o.Endpoint = strings.TrimSuffix(value, "/")
	case "region":
		if !bucket.ValidSegment(value) {
			return wrong("write region=us-east-1")
		}
		o.Region = value
	case "path-style":
		if value != "true" && value != "false" {
			return wrong("write path-style=true or path-style=false")
		}
		o.PathStyle = value == "true"
	case "checksum":
		if value != "off" {
			return wrong("checksums are sent unless you write checksum=off")
		}
		o.ChecksumOff = true
	case "object-lock":
		if value != string(LockGovernance) && value != string(LockCompliance) {
			return wrong("write object-lock=governance or object-lock=compliance")
		}
		o.ObjectLock = LockMode(value)
	case "retention-days":
		days, err := strconv.Atoi(value)
		if err != nil || days < 1 {
			return wrong("write retention-days=30")
		}
		o.RetentionDays = days
	default:
		return &bucket.UsageError{Text: "parse store URL: option " + quoted(name) + " is not known",
			Tip: "an s3 store takes endpoint, region, path-style, ca-file, checksum=off, profile, sse, " +
				"kms-key-id, sse-c-file, storage-class, tagging, object-lock and retention-days; " +
				tipCredentials}
	}
	return nil
}
