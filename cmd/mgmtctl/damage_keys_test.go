package main

import (
	"bytes"
	"os"
	"strings"
)

// damagedKeys are stores in which keys are damaged, gone or swapped, whatever is in them, and
// stores with a wrong mgmtd.json.
var damagedKeys = []damageRow{
	{"nothing", func(*damaged) {}, []run{
		{"list", 0, `trusted`}, {"show", 0, `workload clusters: +4`}, {"structure", 0, `succeeded`},
		{"sample", 0, `succeeded`}, {"full", 0, `succeeded`}, {"diff", 0, `changed`},
		{"plan", 1, targetText},
	}},
	{"a pack that was cut short", func(d *damaged) { d.truncate(d.pack()) }, []run{
		{"structure", 3, `damaged: packs/.*: ` + hashText}, {"full", 3, `damaged: packs/.*: ` + hashText},
		{"show", 0, `workload clusters: +4`},
	}},
	{"a pack of no bytes", func(d *damaged) { d.write(d.pack(), nil) }, []run{
		{"structure", 3, `damaged: packs/.*: ` + hashText}, {"sample", 3, `damaged: read packs/.*: ` +
			hashText},
	}},
	{"a flipped bit in a pack", func(d *damaged) { d.flip(d.pack()) }, []run{
		{"structure", 3, `damaged: packs/.*: ` + hashText}, {"full", 3, `damaged: packs/.*: ` + hashText},
		{"sample", 3, `damaged: read packs/.*: ` + hashText},
	}},
	{"a flipped bit in a shard", func(d *damaged) { d.flip(d.shard()) }, []run{
		{"structure", 3, `damaged: shards/.*: ` + hashText}, {"sample", 3, `damaged: shards/.*: ` +
			hashText}, {"show", 1, `read shards/.*: damaged: ` + hashText},
		{"diff", 1, `read shards/.*: damaged: ` + hashText},
	}},
	{"a shard that was cut short", func(d *damaged) { d.truncate(d.shard()) }, []run{
		{"structure", 3, `damaged: shards/.*: ` + hashText}, {"full", 3, `damaged: shards/.*: ` +
			hashText}, {"show", 1, `read shards/.*: damaged: ` + hashText},
	}},
	{"a flipped bit in a tree", func(d *damaged) { d.flip(string(d.last.Tree)) }, []run{
		{"structure", 3, `damaged: trees/.*: ` + hashText}, {"sample", 3, `damaged: trees/.*: ` +
			hashText}, {"full", 3, `damaged: trees/.*: ` + hashText},
		{"show", 1, `read trees/.*: damaged: ` + hashText},
	}},
	{"a pack that is gone", func(d *damaged) { d.remove(d.pack()) }, []run{
		{"structure", 3, `missing: packs/.*: it is not in the store`},
		{"sample", 3, `damaged: packs/.*: it is not in the store`},
		{"full", 3, `missing: packs/.*: it is not in the store`},
	}},
	{"a shard that is gone", func(d *damaged) { d.remove(d.shard()) }, []run{
		{"structure", 3, `missing: shards/.*: it is not in the store`},
		{"sample", 3, `missing: .*shards/.*not found`}, {"show", 1, `shards/.*: not found`},
	}},
	{"a tree that is gone", func(d *damaged) { d.remove(string(d.last.Tree)) }, []run{
		{"structure", 3, `missing: trees/.*: it is not in the store`},
		{"sample", 3, `missing: .*trees/.*not found`}, {"show", 1, `trees/.*: not found`},
	}},
	{"packs under each other's names", func(d *damaged) {
		first, err := d.st.GetTree(d.t.Context(), d.signed[0].Tree)
		must(d.t, err)
		other := string(first.Packs[0])
		one, two := d.read(d.pack()), d.read(other)
		d.write(d.pack(), two)
		d.write(other, one)
	}, []run{
		{"structure", 3, `damaged: packs/.*: ` + hashText}, {"full", 3, `damaged: packs/.*: ` + hashText},
		{"sample", 3, `damaged: read packs/.*: ` + hashText},
	}},
	{"no packs at all", func(d *damaged) { must(d.t, os.RemoveAll(d.path("packs"))) }, []run{
		{"structure", 3, `missing: packs/.*: it is not in the store`}, {"full", 3, `missing: packs/`},
		{"sample", 3, `damaged: packs/.*: it is not in the store`}, {"show", 0, `workload clusters: +4`},
	}},
	{"half a prune", (*damaged).halfPrune, []run{
		{"list", 0, `trusted`}, {"structure", 0, `succeeded`}, {"full", 0, `succeeded`},
		{"show", 0, `workload clusters: +4`}, {"diff", 1, `there is none, source`}, {"rebuild", 0, `- +1 +0 +0 +0\n`},
		{"prune", 0, `frees: +[1-9][0-9]* keys`},
	}},
	{"what an interrupted write leaves, and foreign files", func(d *damaged) {
		for _, key := range []string{"packs/00/.tmp-ABC", ".tmp-X", "snapshots/.tmp-Y",
			"snapshots/readme.txt", "packs/photo.jpg", "lost+found/x", "trees/00/" +
				strings.Repeat("0", 64)} {
			d.write(key, []byte("left behind"))
		}
	}, []run{{"list", 0, `trusted`}, {"structure", 0, `succeeded`}, {"full", 0, `succeeded`},
		{"show", 0, `workload clusters: +4`}, {"rebuild", 0, ``}}},
	{"an mgmtd.json of no bytes", func(d *damaged) { d.write("mgmtd.json", nil) }, []run{
		{"list", 10, `read mgmtd.json: not an mgmtd store: not our JSON(.|\n)*hint: .*if it is the right place, restore mgmtd.json from a copy`}, {"structure", 10, `not our JSON`}, {"plan", 10, `not our JSON`},
	}},
	{"an mgmtd.json with a field that is wrong", func(d *damaged) {
		d.write("mgmtd.json", bytes.Replace(d.read("mgmtd.json"), []byte(`"encryption":"age"`),
			[]byte(`"encryption":"rot"`), 1))
	}, []run{{"list", 1, `read mgmtd.json: damaged: encryption is neither`},
		{"structure", 1, `damaged: encryption is neither`}}},
	{"no mgmtd.json", func(d *damaged) { d.remove("mgmtd.json") }, []run{
		{"list", 1, `read mgmtd.json: damaged: it is gone, but .* is there`},
		{"structure", 1, `it is gone, but`}, {"full", 1, `it is gone, but`},
		{"plan", 1, `it is gone, but`},
	}},
	{"the store of another one's id", func(d *damaged) {
		d.write("mgmtd.json", bytes.Replace(d.read("mgmtd.json"), []byte(d.st.ID()),
			[]byte(strings.Repeat("0", 32)), 1))
	}, []run{{"list", 1, `damaged: it names store 0{32}, but snapshots that were here before`},
		{"structure", 1, `somebody wrote over it`}, {"plan", 1, `somebody wrote over it`},
		{"rebuild", 1, `somebody wrote over it`}}},
	{"a store of a later version", func(d *damaged) {
		d.write("mgmtd.json", bytes.Replace(d.read("mgmtd.json"), []byte(`"format":1`),
			[]byte(`"format":3`), 1))
	}, []run{
		{"list", 1, `read mgmtd.json: format 3 is not known(.|\n)*hint: use a newer version`},
		{"structure", 1, `format 3 is not known`}, {"plan", 1, `format 3 is not known`},
	}},
}
