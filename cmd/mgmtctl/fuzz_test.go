package main

import (
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"
)

// FuzzPlanFile: a plan that is read from a file is shown, and is the same when it is printed and
// read again.
func FuzzPlanFile(f *testing.F) {
	for _, name := range []string{"restore_plan_json", "restore_plan_yaml", "move_plan_json"} {
		text, err := os.ReadFile("testdata/" + name + ".golden")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"kind":"restore","header":{"spec":{}},"summary":{"digest":"a"},"units":[{}],"objects":[{}],"findings":[{}]}`))
	f.Add([]byte("kind: move\nheader: [1]\n"))
	p := &program{stderr: &console{w: io.Discard}, now: time.Now}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, kind := range []string{kindRestore, kindMove} {
			pl, err := parsePlan(kind, text)
			if err != nil {
				continue
			}
			pl.write(io.Discard, p)
			pl.writeSummary(io.Discard, p)
			document, err := pl.document()
			if err != nil {
				t.Fatal(err)
			}
			printed, err := json.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			again, err := parsePlan(kind, printed)
			if err != nil {
				t.Fatalf("%s cannot be read: %v", printed, err)
			}
			if again.summary.GetDigest() != pl.summary.GetDigest() || again.blocked() != pl.blocked() ||
				len(again.objects) != len(pl.objects) || len(again.units) != len(pl.units) {
				t.Errorf("%s became %s", text, printed)
			}
		}
	})
}
