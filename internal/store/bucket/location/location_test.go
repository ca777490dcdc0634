package location

import (
	"errors"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"os"
	"strings"
	"testing"
)

func TestOpenTakesURLsAndPaths(t *testing.T) {
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, in, want string // want "" for a *bucket.UsageError
	}{
		{"file URL", "file:///var/store", "/var/store"},
		{"file URL with localhost", "file://localhost/var/store", "/var/store"},
		{"escapes", "file:///a%20b", "/a b"},
		{"absolute path", "/var/store/", "/var/store"},
		{"relative path", "store/../other", cwd + "/other"},
		{"current folder", ".", cwd},
		{"s3", "s3://bucket/prefix?region=x", "s3://bucket/prefix?region=x"},
		{"s3 without a prefix", "s3://bucket", "s3://bucket"},
		{"s3 with all options",
			"s3://bucket/a/b/?checksum=off&path-style=true&region=eu-1&endpoint=https://s3.example.com:9000/", "s3://bucket/a/b?endpoint=https://s3.example.com:9000&region=eu-1&path-style=true&checksum=off"},
		{"s3 with Object Lock", "s3://bucket?retention-days=30&object-lock=compliance",
			"s3://bucket?object-lock=compliance&retention-days=30"},
		{"s3 with an odd Object Lock", "s3://bucket?object-lock=yes&retention-days=30", ""},
		{"s3 with odd days", "s3://bucket?object-lock=governance&retention-days=0", ""},
		{"s3 with Object Lock without days", "s3://bucket?object-lock=governance", ""},
		{"s3 with an unknown option", "s3://bucket?secret=x", ""},
		{"s3 with an option twice", "s3://bucket?region=a&region=b", ""},
		{"s3 with checksum on", "s3://bucket?checksum=on", ""},
		{"s3 with an odd path-style", "s3://bucket?path-style=1", ""},
		{"s3 without a bucket", "s3:///prefix", ""},
		{"s3 with a port", "s3://bucket:9000", ""},
		{"s3 with a bad bucket", "s3://B", ""},
		{"s3 with a bad prefix", "s3://bucket/a/../b", ""},
		{"s3 with a fragment", "s3://bucket#x", ""},
		{"s3 with an endpoint without a scheme", "s3://bucket?endpoint=localhost:9000", ""},
		{"s3 with an endpoint with a path", "s3://bucket?endpoint=http://host/path", ""},
		{"s3 with a CA file that is not there", "s3://bucket?ca-file=/none/ca.pem", ""},
		{"s3 without slashes, as restic writes it", "s3:bucket", ""},
		{"s3 with one slash", "s3:/bucket", ""},
		{"a folder whose name begins like that", "./s3:x", cwd + "/s3:x"},
		{"empty", "", ""},
		{"other scheme", "gs://bucket", ""},
		{"host", "file://var/store", ""},
		{"options", "file:///var?x=1", ""},
		{"no path", "file://", ""},
		{"one slash", "file:/var", ""},
		{"bad escape", "file:///%zz", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := Open(tt.in)
			if tt.want == "" {
				if _, ok := errors.AsType[*bucket.UsageError](err); !ok {
					t.Errorf("%v, %v, want *bucket.UsageError", b, err)
				}
				return
			}
			if err != nil || b.String() != tt.want {
				t.Fatalf("%v, %v, want %s", b, err, tt.want)
			}
			if again, err := Open(b.String()); err != nil || again.String() != b.String() {
				t.Errorf("String does not parse back: %v, %v", again, err)
			}
		})
	}
	for _, in := range []string{
		"s3://key:hunter2@bucket", "s3://key:hunter2/x@bucket", "s3://key:hunter2%@bucket",
		"s3://bucket?endpoint=http://key:hunter2@host", "s3://bucket?endpoint=http://key:hunter2%@host",
		"s3://bucket?secret-key=hunter2", "s3://bucket?endpoint=hunter2", "s3://bucket?region=hunter2%20",
		"s3://bucket?checksum=hunter2", "s3://bucket?path-style=hunter2",
	} {
		_, err := Open(in)
		usage, ok := errors.AsType[*bucket.UsageError](err)
		if !ok || usage.Hint() == "" || strings.Contains(err.Error()+usage.Hint(), "hunter2") {
			t.Errorf("%s: %v, want a *bucket.UsageError with a hint and without the secret", in, err)
		}
	}
}

func FuzzStoreURL(f *testing.F) {
	for _, s := range []string{
		"/backup/mgmt", "backup", "file:///backup/a%20b", "s3://bucket",
		"s3://bucket/a/b?region=eu-central-1&path-style=true&checksum=off",
		"s3://b?endpoint=http://host:9000/",
		"s3://key:secret@bucket", "file://host/x", "s3://b?region=a&region=b", "", ":",
		"s3://b?endpoint=http://key:secret@host",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "ca-file") {
			return // names a file of this machine
		}
		u, err := Open(s)
		if err != nil {
			return
		}
		if again, err := Open(u.String()); err != nil || again.String() != u.String() {
			t.Errorf("%q became %q, and that %q, %v", s, u, again, err)
		}
	})
}
