package store

import (
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// URL says where a store is. The zero value is no place.
type URL struct {
	dir string
	s3  *S3
}

const tipURL = "use s3://bucket/prefix?endpoint=https://host:port, file:///dir or a path"

// ParseURL reads what --store takes: "file:///dir", or the path of a directory, which may be
// relative to the working directory; or "s3://bucket/prefix" with the options endpoint, region,
// path-style, ca-file, checksum=off, object-lock and retention-days. Anything else is a
// *UsageError, which never quotes what may be a password.
func ParseURL(s string) (URL, error) {
	if s == "" {
		return URL{}, &UsageError{Text: "parse store URL: empty", Tip: tipURL}
	}
	scheme, _, found := strings.Cut(s, "://")
	if !found {
		if strings.HasPrefix(s, "file:") {
			return URL{}, &UsageError{Text: "parse store URL " + s + ": two slashes missing",
				Tip: "write file:///dir with three slashes, or just the path"}
		}
		return dirURL(s)
	}
	switch scheme {
	case "file":
	case "s3":
		return s3URL(s)
	default:
		return URL{}, &UsageError{Text: "parse store URL: scheme not known", Tip: tipURL}
	}
	u, err := url.Parse(s)
	if err != nil {
		return URL{}, &UsageError{Text: "parse store URL", Err: err}
	}
	if u.Host != "" && u.Host != "localhost" {
		return URL{}, &UsageError{Text: "parse store URL " + s + ": names the host " + u.Host,
			Tip: "write file:///dir with three slashes, or just the path"}
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return URL{}, &UsageError{Text: "parse store URL: a file URL takes no options",
			Tip: "write a \"?\" or \"#\" of the path as %3F or %23"}
	}
	if u.Path == "" {
		return URL{}, &UsageError{Text: "parse store URL " + s + ": no path",
			Tip: "use file:///dir or a path"}
	}
	return dirURL(u.Path)
}

func dirURL(path string) (URL, error) {
	if strings.ContainsRune(path, 0) {
		return URL{}, &UsageError{Text: "parse store URL: path holds a zero byte"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return URL{}, &UsageError{Text: "parse store URL", Err: err}
	}
	return URL{dir: abs}, nil
}

// s3URL does not pass the parser's errors on: they quote the URL.
func s3URL(s string) (URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return URL{}, &UsageError{Text: "parse store URL: not a URL", Tip: tipURL}
	}
	if u.User != nil {
		return URL{}, &UsageError{Text: "parse store URL: it holds credentials", Tip: tipCredentials}
	}
	if u.Fragment != "" || u.Port() != "" {
		return URL{}, &UsageError{Text: "parse store URL: it has a port or a fragment", Tip: tipURL}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return URL{}, &UsageError{Text: "parse store URL: its options cannot be read", Tip: tipURL}
	}
	o := S3Options{Bucket: u.Host, Prefix: u.Path}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) != 1 {
			return URL{}, &UsageError{Text: "parse store URL: option " + name + " is given twice"}
		}
		if err := o.set(name, query[name][0]); err != nil {
			return URL{}, err
		}
	}
	b, err := NewS3(o)
	if err != nil {
		return URL{}, err
	}
	return URL{s3: b}, nil
}

// set takes one option of a URL.
func (o *S3Options) set(name, value string) error {
	wrong := func(tip string) error {
		return &UsageError{Text: "parse store URL: option " + name + " has a value that is not known",
			Tip: tip}
	}
	switch name {
	case "endpoint":
		o.Endpoint = strings.TrimSuffix(value, "/")
	case "region":
		if !validSegment(value) {
			return wrong("write region=us-east-1")
		}
		o.Region = value
	case "ca-file":
		o.CAFile = value
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
		return &UsageError{Text: "parse store URL: option " + quoted(name) + " is not known",
			Tip: "an s3 store takes endpoint, region, path-style, ca-file, checksum=off, object-lock and " +
				"retention-days; " + tipCredentials}
	}
	return nil
}

// Bucket returns the bucket at the URL; it touches nothing.
func (u URL) Bucket() Bucket {
	if u.s3 != nil {
		return u.s3
	}
	return NewDir(u.dir)
}

// String returns the URL in the form that ParseURL reads.
func (u URL) String() string {
	if u.s3 != nil {
		return u.s3.String()
	}
	return (&url.URL{Scheme: "file", Path: u.dir}).String()
}
