// Package document is the form of every document of a store: one JSON object that all readers
// understand alike, and a version of the format in it.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Decode reads one JSON object that anybody may have written. It refuses what two readers could
// understand differently, since jq and minisign are readers too: invalid UTF-8, a name that occurs
// twice in one object (in any case of its letters, because encoding/json ignores case), text after
// the end. When names are given, the names of the object must be among them, exactly.
func Decode(data []byte, v any, names ...string) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	if err := checkObject(dec, 1, names); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("text after the JSON object")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	return nil
}

const maxDepth = 32 // deeper than any document of ours

// checkObject reads up to the end of an object whose "{" is read.
func checkObject(dec *json.Decoder, depth int, names []string) error {
	seen := map[string]bool{}
	for {
		t, err := dec.Token()
		if err != nil {
			return fmt.Errorf("decode JSON: %w", err)
		}
		name, ok := t.(string)
		if !ok {
			return nil // the "}"; the decoder allows nothing else here
		}
		folded := strings.ToLower(name)
		if seen[folded] {
			return fmt.Errorf("name %.40q occurs twice", name)
		}
		seen[folded] = true
		if len(names) > 0 && !slices.Contains(names, name) {
			return fmt.Errorf("name %.40q is not known", name)
		}
		if err := checkValue(dec, depth); err != nil {
			return err
		}
	}
}

func checkValue(dec *json.Decoder, depth int) error {
	t, err := dec.Token()
	if err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	if depth == maxDepth {
		return errors.New("nested too deep")
	}
	switch t {
	case json.Delim('{'):
		return checkObject(dec, depth+1, nil)
	case json.Delim('['):
		for dec.More() {
			if err := checkValue(dec, depth+1); err != nil {
				return err
			}
		}
		_, err := dec.Token()
		return err
	}
	return nil
}

// Encode writes one line of JSON, without the escapes for HTML that encoding/json likes: people
// read these files.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Printable reports whether s is at most 512 bytes of text that prints. A document that anybody may
// have written must not send escape sequences to the operator's terminal.
func Printable(s string) bool {
	if len(s) > 512 || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// ValidTime reports whether t is in whole milliseconds, and in years that all readers parse.
func ValidTime(t time.Time) bool {
	year := t.UTC().Year()
	return t.Equal(t.Truncate(time.Millisecond)) && year >= 1970 && year <= 9999
}
