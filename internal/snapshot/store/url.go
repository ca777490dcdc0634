package store

import (
	"net/url"
	"path/filepath"
	"strings"
)

// URL says where a store is. The zero value is no place.
type URL struct {
	dir string
}

// ParseURL reads what --store takes: "file:///dir", or the path of a directory, which may be relative to the working directory. Anything else is a
// *UsageError.
func ParseURL(s string) (URL, error) {
	if s == "" {
		return URL{}, &UsageError{Text: "parse store URL: empty", Tip: "give file:///dir or a path"}
	}
	scheme, _, found := strings.Cut(s, "://")
	if !found {
		if strings.HasPrefix(s, "file:") {
			return URL{}, &UsageError{Text: "parse store URL " + s + ": two slashes missing", Tip: "write file:///dir with three slashes, or just the path"}
		}
		return dirURL(s)
	}
	switch scheme {
	case "file":
	case "s3":
		// Without the URL: it may hold credentials that do not belong there.
		return URL{}, &UsageError{Text: "parse store URL: s3 stores come with the daemon release", Tip: "use file:///dir or a path"}
	default:
		return URL{}, &UsageError{Text: "parse store URL: scheme not known", Tip: "use file:///dir or a path"}
	}
	u, err := url.Parse(s)
	if err != nil {
		return URL{}, &UsageError{Text: "parse store URL", Err: err}
	}
	if u.Host != "" && u.Host != "localhost" {
		return URL{}, &UsageError{Text: "parse store URL " + s + ": names the host " + u.Host, Tip: "write file:///dir with three slashes, or just the path"}
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return URL{}, &UsageError{Text: "parse store URL: a file URL takes no options", Tip: "write a \"?\" or \"#\" of the path as %3F or %23"}
	}
	if u.Path == "" {
		return URL{}, &UsageError{Text: "parse store URL " + s + ": no path", Tip: "use file:///dir or a path"}
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

// Bucket returns the bucket at the URL; it touches nothing.
func (u URL) Bucket() Bucket { return NewDir(u.dir) }

// String returns the URL in the form that ParseURL reads.
func (u URL) String() string { return (&url.URL{Scheme: "file", Path: u.dir}).String() }
