//go:build api

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// seeds are the values that must not be found, by a description of each.
type seeds map[string]string

// mark makes a unique value. It consists of letters and digits, so that no escaping changes it.
func (s seeds) mark(what string) string {
	s[what] = fmt.Sprintf("Marker%03dOf%xEnd", len(s), bytes.Repeat([]byte{byte(37 + 11*len(s))}, 7))
	return s[what]
}

// add adds a value that exists already.
func (s seeds) add(t *testing.T, what, value string) {
	t.Helper()
	if len(value) < 16 {
		t.Fatalf("%s has %d characters, which may be found anywhere", what, len(value))
	}
	s[what] = value
}

// forms returns a value raw, in hex, in base64 at each position in the encoded text, and in base64
// of that base64, for Secrets inside of something.
func forms(value string) [][]byte {
	list := [][]byte{[]byte(value), []byte(hex.EncodeToString([]byte(value))),
		[]byte(strings.ToUpper(hex.EncodeToString([]byte(value))))}
	for _, once := range aligned(value) {
		list = append(list, []byte(once), []byte(strings.NewReplacer("+", "-", "/", "_").Replace(once)))
		for _, twice := range aligned(once) {
			list = append(list, []byte(twice))
		}
	}
	return list
}

// aligned returns the three base64 texts of a value, one for each alignment, without the
// characters that also depend on neighbouring bytes.
func aligned(value string) (texts []string) {
	for before := range 3 {
		all := base64.StdEncoding.EncodeToString(append(make([]byte, before), value...))
		texts = append(texts, all[(before*8+5)/6:(before+len(value))*8/6])
	}
	return texts
}

// places are the texts to search, by where each is from.
type places map[string][]byte

// find returns where each seed is, and in which form.
func (p places) find(s seeds) (found []string) {
	for what, value := range s {
		for _, form := range forms(value) {
			for place, text := range p {
				if i := bytes.Index(text, form); i >= 0 {
					found = append(found, fmt.Sprintf("%s is in %s: ...%q...", what, place,
						text[max(0, i-80):min(len(text), i+len(form)+20)]))
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// folder adds all files of a folder, with their paths.
func (p places) folder(t *testing.T, name, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		key := strings.TrimPrefix(path, dir)
		text, err := os.ReadFile(path)
		p[name+" key "+key], p[name+" bytes of "+key] = []byte(key), text
		if strings.HasSuffix(key, ".zst") {
			p[name+" decompressed "+key] = decompressed(t, text)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%s: %d files, %v", name, files, err)
	}
}

func decompressed(t *testing.T, text []byte) []byte {
	t.Helper()
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	plain, err := dec.DecodeAll(text, nil)
	if err != nil {
		t.Error(err)
	}
	return plain
}

// catalogFile adds a catalog: its bytes, and the texts that are compressed in them.
func (p places) catalogFile(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p["catalog "+path] = text
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ops, err := c.Operations(t.Context(), catalog.OperationFilter{})
	if err != nil {
		t.Fatal(err)
	}
	plans := 0
	for _, op := range ops {
		if plan, err := c.Plan(t.Context(), op.ID); err == nil {
			p["plan of "+string(op.Kind)+" "+string(op.ID)] = plan
			plans++
		}
	}
	if plans == 0 {
		t.Errorf("%s holds no plan", path)
	}
	// Plans of batches have no list. Every zstd frame begins with these bytes.
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for i := bytes.Index(text, magic); i >= 0; {
		dec, err := zstd.NewReader(bytes.NewReader(text[i:]), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := io.ReadAll(io.LimitReader(dec, 64<<20)) // bytes after the frame are an error
		dec.Close()
		p[fmt.Sprintf("frame at %d of %s", i, path)] = plain
		next := bytes.Index(text[i+1:], magic)
		if next < 0 {
			break
		}
		i += 1 + next
	}
}
