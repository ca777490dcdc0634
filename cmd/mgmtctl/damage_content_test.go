package main

import (
	"archive/tar"
	"strings"

	"filippo.io/age"

	"github.com/mgmtd/mgmtd/internal/store"
)

// damagedContent are stores with a signed envelope over packs, shards and trees that no writer
// makes.
var damagedContent = []damageRow{
	{"a path out of the folder", func(d *damaged) { d.editPack(d.tarOf(nil, "../../../etc/passwd")) },
		[]run{
			{"structure", 0, `succeeded`}, {"full", 3,
				`damaged: read packs/.*etc/passwd.*: not <group>/<Kind>/<namespace>/<name>.json`},
		}},
	{"a link in a pack", func(d *damaged) {
		d.editPack(d.tarOf(func(h *tar.Header) {
			h.Typeflag, h.Linkname = tar.TypeSymlink,
				"/etc/passwd"
		}, "core/Secret/ns/link.json"))
	}, []run{
		{"structure", 0, `succeeded`}, {"full", 3,
			`damaged: read packs/.*link.json\\?" is not a regular file`},
	}},
	{"an absolute path", func(d *damaged) { d.editPack(d.tarOf(nil, "/etc/passwd")) },
		[]run{{"full", 3, `damaged: read packs/.*etc/passwd.*: not <group>/<Kind>/<namespace>/<name>.json`}}},
	{"a device in a pack", func(d *damaged) {
		d.editPack(d.tarOf(func(h *tar.Header) { h.Typeflag = tar.TypeBlock },
			"core/Secret/ns/disk.json"))
	}, []run{{"full", 3, `damaged: read packs/.*disk.json.* is not a regular file`}}},
	{"a name twice in a pack", func(d *damaged) { d.editPack(d.tarOf(nil, d.firstEntry())) },
		[]run{{"structure", 0, `succeeded`}, {"full", 3, `damaged: read packs/.*: damaged: two files`}}},
	{"a pack with ten million files", func(d *damaged) { d.editPack(d.manyFiles()) }, []run{
		{"structure", 0, `succeeded`}, {"full", 3,
			`damaged: read packs/.*: damaged: more than 32768 files`},
		{"sample", 3, `more than 32768 files`},
	}},
	{"a pack that decompresses to 4 GiB", func(d *damaged) { d.editPack(d.largeFiles()) }, []run{
		{"structure", 0, `succeeded`}, {"full", 3,
			`damaged: read packs/.*: damaged: more than 33554432 bytes when decompressed`},
		{"sample", 3, `more than 33554432 bytes`},
	}},
	{"a shard that decompresses to 4 GiB", func(d *damaged) { d.addShard(d.bomb(' ')) }, []run{
		{"structure", 0, `succeeded`}, {"full", 3,
			`damaged: shards/.*: more than 33554432 bytes when decompressed`},
		{"show", 1, `more than 33554432 bytes`}, {"diff", 1, `more than 33554432 bytes`},
	}},
	{"a tree that decompresses to 4 GiB", func(d *damaged) {
		key := d.place("trees", ".json.zst", d.bomb(' '))
		d.next(func(e *store.Envelope) { e.Tree = key })
	}, []run{{"structure", 3, `damaged: trees/.*: more than 33554432 bytes when decompressed`},
		{"show", 1, `more than 33554432 bytes`}}},
	{"a shard with ten million empty objects",
		func(d *damaged) { d.addShard(d.manyOf(`{"objects":[`, `{}`, `]}`)) }, []run{
			{"structure", 0, `succeeded`}, {"full", 3,
				`damaged: shards/.*: decode shard: more objects than fit into it`},
			{"show", 1, `decode shard: more objects than fit into it`},
		}},
	{"a shard with millions of objects that are none",
		func(d *damaged) { d.addShard(d.manyOf(`{"objects":[`, `null`, `]}`)) },
		[]run{{"full", 3, `decode shard: object 0 is incomplete`}}},
	{"a shard with more objects than the envelope counts", func(d *damaged) {
		object := `{"kind":"Secret","name":"s","version":"v1","sha256":"a","pack":"` + d.pack() + `"}`
		d.addShard(d.manyOf(`{"objects":[`, object, `]}`))
	}, []run{{"structure", 0, `succeeded`}, {"full", 3,
		`damaged: .*more objects than the 46 that the envelope counts`},
		{"show", 1, `more objects than the 46 that the envelope counts`}}},
	{"an object with ten million edges", func(d *damaged) {
		d.addShard(d.manyOf(`{"objects":[{"kind":"Secret","name":"s","version":"v1","sha256":"a","pack":"`+d.pack()+`","needs":[`, `{}`, `]}]}`))
	}, []run{{"full", 3, `damaged: shards/.*: decode shard: `}, {"show", 1, `decode shard: `}}},
	{"ten million kinds", func(d *damaged) {
		d.addShard(d.manyOf(`{"about":{"kinds":[`, `{}`,
			`]},"objects":[]}`))
	}, []run{
		{"full", 3, `damaged: shards/.*: decode shard: `}, {"show", 1, `decode shard: `},
	}},
	{"a tree with ten million keys", func(d *damaged) {
		key := d.place("trees", ".json.zst", d.manyOf(`{"shards":[`, `""`, `],"packs":[]}`))
		d.next(func(e *store.Envelope) { e.Tree = key })
	}, []run{{"structure", 3, `damaged: trees/.*: it names more keys than fit into it`},
		{"show", 1, `it names more keys than fit into it`}}},
	{"a tree that names a key twice", func(d *damaged) {
		d.rawTree(`{"shards":["` + d.shard() + `","` +
			d.shard() + `"],"packs":[]}` + "\n")
	}, []run{
		{"structure", 3, `damaged: trees/.*: it is more than two sorted lists of keys, each key once`},
		{"show", 1, `it is more than two sorted lists of keys`},
	}},
	{"a tree that is not sorted", func(d *damaged) {
		d.rawTree(`{"shards":["` + string(d.tree.Shards[1]) + `","` + string(d.tree.Shards[0]) +
			`"],"packs":[]}` + "\n")
	}, []run{{"structure", 3,
		`damaged: trees/.*: it is more than two sorted lists of keys, each key once`}}},
	{"a tree that names a pack as a shard", func(d *damaged) {
		d.rawTree(`{"shards":["` + d.pack() +
			`"],"packs":[]}` + "\n")
	}, []run{{"structure", 3, `damaged: trees/.*: it names .*packs/.* as a shard`}}},
	{"a shard that says another UID", func(d *damaged) {
		d.editObject(func(o map[string]any) { o["uid"] = "another" })
	}, []run{
		{"structure", 0, `succeeded`}, {"full", 3,
			`damaged Machine.*: it is not what its shard says: another UID, or other owners`},
	}},
	{"a shard that says another name", func(d *damaged) {
		d.editObject(func(o map[string]any) { o["name"] = "another" })
	}, []run{
		{"structure", 0, `succeeded`}, {"full", 3, `damaged Machine.*/another: it is not in packs/`},
	}},
	{"a shard that says another kind", func(d *damaged) {
		d.editObject(func(o map[string]any) { o["kind"] = "MachineSet" })
	}, []run{{"full", 3, `damaged MachineSet.*: it is not in packs/`}}},
	{"a shard that says another hash", func(d *damaged) {
		d.editObject(func(o map[string]any) { o["sha256"] = strings.Repeat("0", 64) })
	}, []run{
		{"structure", 0, `succeeded`}, {"full", 3,
			`damaged Machine.*: it is not what its shard says: its bytes do not fit the hash`},
	}},
	{"a shard that says an edge less", func(d *damaged) {
		d.editObject(func(o map[string]any) { delete(o, "needs") })
	}, []run{
		{"structure", 0, `succeeded`}, {"full", 3, `edges Machine.*: this version reads other edges`},
		{"sample", 3, `edges Machine`},
	}},
	{"a shard that says an edge less, of another version", func(d *damaged) {
		d.last.Writer = "mgmtctl v1.2.4"
		d.editObject(func(o map[string]any) { delete(o, "needs") })
	}, []run{{"full", 0, `edges Machine.*\n.*it was taken by another version \(mgmtctl v1.2.4\)`}}},
	{"a shard that says another workload cluster",
		func(d *damaged) { d.editObject(func(o map[string]any) { o["cluster"] = "another" }) }, []run{
			{"structure", 0, `succeeded`}, {"full", 3, `edges Machine`},
		}},
	{"a shard that says a pack that is not of the snapshot", func(d *damaged) {
		d.editObject(func(o map[string]any) {
			o["pack"] = "packs/00/" + strings.Repeat("0", 64) +
				".tar.zst.age"
		})
	}, []run{{"structure", 0, `succeeded`}, {"full", 3,
		`damaged: trees/.*is said to be in a pack that the tree does not name`},
		{"show", 1, `is said to be in a pack that the tree does not name`}}},
	{"a name that leaves the folder, in a shard",
		func(d *damaged) { d.editObject(func(o map[string]any) { o["name"] = "../../x" }) },
		[]run{{"structure", 0, `succeeded`}, {"full", 3,
			`damaged: trees/.*: it holds what cannot be: .*bad name`},
			{"show", 1, `it holds what cannot be`}}},
	{"bytes that are no age file", func(d *damaged) {
		d.nextOf(store.Tree{Shards: append([]store.Key{d.place("shards", ".json.zst.age",
			[]byte("not age"))}, d.tree.Shards...), Packs: d.tree.Packs})
	}, []run{{"structure", 0, `succeeded`}, {"full", 3, `damaged: shards/.*: decrypt: `},
		{"show", 1, `shards/.*: damaged: decrypt: `}}},
	{"a shard that is encrypted to somebody else", func(d *damaged) {
		other, err := age.GenerateX25519Identity()
		must(d.t, err)
		key := d.place("shards", ".json.zst.age", d.encrypt(d.compress([]byte(`{"objects":[]}`)),
			other.Recipient()))
		d.nextOf(store.Tree{Shards: append([]store.Key{key}, d.tree.Shards...), Packs: d.tree.Packs})
	}, []run{{"structure", 0, `succeeded`}, {"full", 12,
		`identity wrong: it is encrypted to other recipients`}, {"show", 12, `identity wrong`}}},
	{"the identity of somebody else", func(*damaged) {},
		[]run{{"show as another identity", 12, `identity wrong`}, {"full as another identity", 12,
			`identity wrong`},
			{"structure", 0, `succeeded`}}},
	{"no identity", func(*damaged) {}, []run{{"full as nobody", 12, `--identity`},
		{"show as nobody", 0, `trust: +trusted`}}},
}
