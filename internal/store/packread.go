package store

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// ReadPack reads a pack and calls fn for every file in it, in order; fn may keep body. The stored
// bytes are checked against the key before anything is decrypted. Errors: ErrNotFound,
// *CorruptError, *KeyError when no identity fits; an error of fn is returned as it is. fn may have
// been called before damage is found further on.
func (s *Store) ReadPack(ctx context.Context, key Key,
	fn func(name string, body []byte) error) error {
	stored, err := s.getContent(ctx, key, KindPack)
	if err != nil {
		return err
	}
	r, err := s.unseal(key, stored)
	if err != nil {
		return bucket.AsCorrupt(string(key), err)
	}
	defer r.Close()
	var ofCaller error
	err = readTar(r, s.limits, func(name string, body []byte) error {
		if ofCaller = ctx.Err(); ofCaller == nil {
			ofCaller = fn(name, body)
		}
		return ofCaller
	})
	if ofCaller != nil {
		return ofCaller
	}
	return bucket.AsCorrupt(string(key), err)
}

// readTar reads a tar as strictly as we write it: anything that an ordinary tar may also hold is
// damage.
func readTar(r io.Reader, lim limits, fn func(name string, body []byte) error) error {
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
		if len(seen) == lim.maxEntries {
			return bucket.Damage(fmt.Sprintf("more than %d files", lim.maxEntries))
		}
		if err := checkHeader(h, lim); err != nil {
			return err
		}
		if seen[h.Name] {
			return bucket.Damage(fmt.Sprintf("two files %q", h.Name))
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
		return bucket.Damage("bytes after the end of the tar")
	}
	return nil
}

// tarDamage keeps the reason that came from below the tar.
func tarDamage(err error) error {
	if d, ok := errors.AsType[bucket.Damage](err); ok {
		return d
	}
	return bucket.Damage("read tar: " + err.Error())
}

func checkHeader(h *tar.Header, lim limits) error {
	if h.Typeflag != tar.TypeReg {
		return bucket.Damage(fmt.Sprintf("%.120q is not a regular file", h.Name))
	}
	if _, err := ParseEntryName(h.Name); err != nil {
		return bucket.Damage(err.Error())
	}
	if h.Size < 0 || h.Size > lim.maxObject {
		return bucket.Damage(fmt.Sprintf("%q has %d bytes, more than %d", h.Name, h.Size, lim.maxObject))
	}
	for record := range h.PAXRecords {
		// Others change what the body means: sparse files make much out of little.
		if record != "path" {
			return bucket.Damage(fmt.Sprintf("%q has the tar record %.40q", h.Name, record))
		}
	}
	if h.Format == tar.FormatGNU || h.Mode != 0o600 {
		return bucket.Damage(fmt.Sprintf("%q was not packed by mgmtd", h.Name))
	}
	return nil
}
