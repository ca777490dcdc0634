package s3

import (
	"errors"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"testing"
)

// FuzzConditional: only a record that says so makes conditional writes be relied upon.
func FuzzConditional(f *testing.F) {
	for _, s := range []string{
		`{"format":1,"conditional":"yes"}`, `{"format":1,"conditional":"probing"}`,
		`{"format":2,"conditional":"yes"}`, `{"format":1,"conditional":"no","conditional":"yes"}`,
		`{"format":1,"Conditional":"yes"}`, `{"format":1,"conditional":true}`, `{"format":1}`, `null`,
		`{"format":1,"conditional":"yes"} {}`, "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := parseConditional(data)
		_, corrupt := errors.AsType[*bucket.CorruptError](err)
		_, future := errors.AsType[*document.FormatError](err)
		if err != nil && !corrupt && !future || err != nil && state != "" {
			t.Errorf("state %q, error %v", state, err)
		}
		if err != nil {
			return
		}
		text, err := document.Encode(conditionalRecord{Format: document.Format, Conditional: state})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseConditional(text); err != nil || again != state {
			t.Errorf("%q became %q, %v", state, again, err)
		}
	})
}
