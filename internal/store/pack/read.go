package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Read calls fn for every file of the tar in a pack, in order. It accepts only what Writer writes:
// anything else that a tar may hold is bucket.DamageError. An error of fn is returned unchanged.
func Read(r io.Reader, lim Limits, fn func(name string, body []byte) error) error {
	t := tar.NewReader(r)
	seen := map[string]bool{}
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return tarDamage(err)
		}
		if len(seen) == lim.MaxEntries {
			return bucket.DamageError(fmt.Sprintf("more than %d files", lim.MaxEntries))
		}
		if err := checkHeader(h, lim); err != nil {
			return err
		}
		if seen[h.Name] {
			return bucket.DamageError(fmt.Sprintf("two files %q", h.Name))
		}
		seen[h.Name] = true
		body := make([]byte, h.Size)
		if _, err := io.ReadFull(t, body); err != nil {
			return tarDamage(err)
		}
		if err := fn(h.Name, body); err != nil {
			return err
		}
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return bucket.DamageError("bytes after the end of the tar")
	}
	return nil
}

// tarDamage returns the damage that was found below the tar, or else describes the error of the
// tar.
func tarDamage(err error) error {
	if d, ok := errors.AsType[bucket.DamageError](err); ok {
		return d
	}
	return bucket.DamageError("read tar: " + err.Error())
}

func checkHeader(h *tar.Header, lim Limits) error {
	if h.Typeflag != tar.TypeReg {
		return bucket.DamageError(fmt.Sprintf("%.120q is not a regular file", h.Name))
	}
	if _, err := ParseEntryName(h.Name); err != nil {
		return bucket.DamageError(err.Error())
	}
	if h.Size < 0 || h.Size > lim.MaxObject {
		return bucket.DamageError(fmt.Sprintf("%q has %d bytes, more than %d", h.Name, h.Size,
			lim.MaxObject))
	}
	for record := range h.PAXRecords {
		// Others change what the body means: sparse files make much out of little.
		if record != "path" {
			return bucket.DamageError(fmt.Sprintf("%q has the tar record %.40q", h.Name, record))
		}
	}
	if h.Format == tar.FormatGNU || h.Mode != 0o600 {
		return bucket.DamageError(fmt.Sprintf("%q was not packed by mgmtd", h.Name))
	}
	return nil
}
