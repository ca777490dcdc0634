package directory

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Open returns the bucket in the directory that "file:///dir" names, or that has the path s, which
// may be relative to the working directory. *bucket.UsageError.
func Open(s string) (bucket.Bucket, error) {
	if !strings.Contains(s, "://") {
		if strings.HasPrefix(s, "file:") {
			return nil, &bucket.UsageError{Text: "parse store URL " + s + ": two slashes missing",
				Tip: "write file:///dir with three slashes, or just the path"}
		}
		return openPath(s)
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, &bucket.UsageError{Text: "parse store URL", Err: err}
	}
	if u.Host != "" && u.Host != "localhost" {
		return nil, &bucket.UsageError{Text: "parse store URL " + s + ": names the host " + u.Host,
			Tip: "write file:///dir with three slashes, or just the path"}
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, &bucket.UsageError{Text: "parse store URL: a file URL takes no options",
			Tip: "write a \"?\" or \"#\" of the path as %3F or %23"}
	}
	if u.Path == "" {
		return nil, &bucket.UsageError{Text: "parse store URL " + s + ": no path",
			Tip: "use file:///dir or a path"}
	}
	return openPath(u.Path)
}

func openPath(path string) (bucket.Bucket, error) {
	if strings.ContainsRune(path, 0) {
		return nil, &bucket.UsageError{Text: "parse store URL: path holds a zero byte"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &bucket.UsageError{Text: "parse store URL", Err: err}
	}
	return New(abs), nil
}
