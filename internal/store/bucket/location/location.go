// Package location opens the bucket that a store URL names. It is the one list of the kinds of
// storage.
package location

import (
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// backends has the factory of each kind of storage by the scheme of its URLs. A new kind is a
// folder below bucket and a line here.
var backends = map[string]bucket.Factory{
	"file": directory.Open,
	"s3":   s3.Open,
}

const tipURL = "use s3://bucket/prefix?endpoint=https://host:port, file:///dir or a path"

// Open returns the bucket at a store URL, or in the directory whose path is given; it touches
// nothing there. Anything else is a *bucket.UsageError, which never quotes what may be a password.
func Open(url string) (bucket.Bucket, error) {
	if url == "" {
		return nil, &bucket.UsageError{Text: "parse store URL: empty", Tip: tipURL}
	}
	scheme, _, found := strings.Cut(url, "://")
	if !found {
		if strings.HasPrefix(url, "s3:") { // as restic writes it
			return nil, &bucket.UsageError{Text: "parse store URL: two slashes missing",
				Tip: "write s3://bucket/prefix?endpoint=https://host:port; a directory of that name is ./s3:…"}
		}
		return directory.Open(url)
	}
	open, ok := backends[scheme]
	if !ok {
		return nil, &bucket.UsageError{Text: "parse store URL: scheme not known", Tip: tipURL}
	}
	return open(url)
}
