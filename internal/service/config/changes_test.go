package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangesNamesEachFieldThatDiffers(t *testing.T) {
	dir := folder(t)
	read := func(text string) *Config {
		t.Helper()
		c, err := load(t, dir, text)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := read(goodOwn + goodVelero)
	for _, test := range []struct {
		name string
		edit []string // pairs
		want []string
	}{
		{"nothing", nil, nil},
		{"a list is one field", []string{`[{name: "20", role: view}, `, `[{name: "22", role: view}, `},
			[]string{"Config: spec.listen.groups"}},
		{"set and not set", []string{"  metrics: 127.0.0.1:8085\n", "", "catalog.db\n",
			"catalog.db\n  auditLog: a\n"}, []string{"Config: spec.auditLog", "Config: spec.metrics"}},
		{"what counts as not set", []string{"  metrics:", "  auditLog: \"\"\n  metrics:"}, nil},
		{"what mgmtd ignores", []string{"phase: Available", "phase: Other", "generation: 3",
			"generation: 4", "note: ignored", "note: other"}, nil},
		{"an annotation that counts", []string{"jitter: 10s", "jitter: 11s"},
			[]string{`Schedule "often": metadata.annotations.mgmtd.dev/jitter`}},
		{"another name", []string{"name: often", "name: rarely"},
			[]string{`Schedule "often"`, `Schedule "rarely"`}},
		{"a mapping is each of its fields", []string{"prefix: prod", "prefix: p", "keepLast: 3",
			"keepLast: 4"}, []string{`BackupStorageLocation "main": spec.objectStorage.prefix`,
			"Config: spec.retention.keepLast"}},
	} {
		var got []string
		for _, c := range before.Changes(read(strings.NewReplacer(test.edit...).Replace(
			goodOwn + goodVelero))) {
			got = append(got, c.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}
