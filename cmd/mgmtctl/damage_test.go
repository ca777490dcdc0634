package main

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// mostMemory is what mgmtctl may take at most, in bytes, whatever is in the store.
const mostMemory = 600 << 20

// run is one command on a damaged store, and what has to come of it.
type run struct {
	command string
	exit    int
	text    string // regular expression on what it prints
}

// damageCommands are the commands of the table. All have the store and a catalog of their own;
// those that can also have the identity and the trusted key.
var damageCommands = map[string][]string{
	"list":      {"snapshot", "list"},
	"show":      {"snapshot", "show", "latest", "IDENTITY"},
	"structure": {"snapshot", "verify", "latest"},
	"sample":    {"snapshot", "verify", "latest", "--level", "sample", "IDENTITY"},
	"full":      {"snapshot", "verify", "latest", "--level", "full", "IDENTITY"},
	"diff":      {"snapshot", "diff", "FIRST", "latest", "IDENTITY"},
	"plan":      {"restore", "plan", "--source-is-gone", "IDENTITY", "TARGET"},
	"rebuild":   {"catalog", "rebuild"},
	"prune":     {"prune", "plan", "--keep-last", "1"},
	"watch":     {"operation", "watch", "latest"}, // of the command before, with what is info only

	"show as another identity": {"snapshot", "show", "latest", "OTHER"},
	"full as another identity": {"snapshot", "verify", "latest", "--level", "full", "OTHER"},
	"show as nobody":           {"snapshot", "show", "latest"},
	"full as nobody":           {"snapshot", "verify", "latest", "--level", "full"},
}

const (
	hashText = `its bytes do not fit the hash in its name`
	// The target of the table does not exist: a command that reaches it found no damage.
	targetText = `reach management cluster|connection refused`
)

// adviceText is how mgmtctl says what to do: of an operation that failed, behind its message.
var adviceText = regexp.MustCompile(`hint: |(?m)^message: .*\(.+\)$`)

// TestDamagedStores makes damaged stores from a good one and says for each what mgmtctl answers.
// Whatever it is: no command panics, takes much memory, changes the store, or prints a Secret; one
// that fails says what to do.
func TestDamagedStores(t *testing.T) {
	good := newGoodStore(t)
	for _, tt := range damageRows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := good.copy(t)
			tt.damage(d)
			before := d.files()
			for _, r := range tt.runs {
				d.check(r)
			}
			if after := d.files(); !maps.Equal(before, after) {
				t.Errorf("the store was changed: %v, was %v", after, before)
			}
		})
	}
}

func (d *damaged) check(r run) {
	d.t.Helper()
	var args []string
	for _, a := range damageCommands[r.command] {
		switch a {
		case "IDENTITY":
			args = append(args, "--identity", d.file("keys/identity.txt"))
		case "OTHER":
			args = append(args, "--identity", d.file("other/identity.txt"))
		case "FIRST":
			args = append(args, string(d.signed[0].ID))
		case "TARGET":
			args = append(args, "--target-kubeconfig", d.file("target.kubeconfig"))
		default:
			args = append(args, a)
		}
	}
	if len(args) == 0 {
		d.t.Fatalf("no command %q", r.command)
	}
	args = append(args, "--standalone", "--store", d.root, "--catalog",
		filepath.Join(filepath.Dir(d.root), "catalog.db"), "--trusted-key", d.file("keys/signing.pub"))
	cmd := exec.CommandContext(d.t.Context(), d.mgmtctl, args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(d.root))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended, took := make(chan struct{}), make(chan int64, 1)
	go func() { took <- watchMemory(cmd.Process.Pid, ended) }()
	_ = cmd.Wait() // the exit code is checked below
	close(ended)
	text := out.String()
	fail := func(format string, a ...any) {
		d.t.Helper()
		d.t.Errorf(r.command+": "+format+"\n%s", append(a, text[:min(len(text), 4000)])...)
	}
	if code := cmd.ProcessState.ExitCode(); code != r.exit {
		fail("exit code %d, want %d", code, r.exit)
	}
	if !regexp.MustCompile(r.text).MatchString(text) {
		fail("want %q in", r.text)
	}
	if r.exit != 0 && !adviceText.MatchString(text) {
		fail("it does not say what to do")
	}
	if strings.Contains(text, "goroutine ") || strings.Contains(text, snapshottest.SecretText) {
		fail("it panics, or prints a Secret")
	}
	if took := <-took; took > mostMemory {
		fail("it took %d MiB", took>>20)
	}
}

// damageRows are the stores. What is wrong with a key is found at every level and without an
// identity; damage inside is found by levels that open the packs.
var damageRows = []struct {
	name   string
	damage func(d *damaged)
	runs   []run
}{
	{"nothing", func(*damaged) {}, []run{
		{"list", 0, `trusted`}, {"show", 0, `units: +4`}, {"structure", 0, `succeeded`},
		{"sample", 0, `succeeded`}, {"full", 0, `succeeded`}, {"diff", 0, `changed`},
		{"plan", 1, targetText},
	}},
	{"a pack that was cut short", func(d *damaged) { d.truncate(d.pack()) }, []run{
		{"structure", 3, `damaged: packs/.*: ` + hashText}, {"full", 3, `damaged: packs/.*: ` + hashText},
		{"show", 0, `units: +4`},
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
	{"an old envelope under a new name", func(d *damaged) {
		k := d.last.Key()
		k.Time = k.Time.AddDate(0, 0, 1)
		d.write(k.String(), d.read(d.signed[0].Key().String()))
	}, []run{
		{"list", 0, `damaged.*it is the document snapshots/`},
		{"structure", 3, `damaged: snapshots/.*: it is the document snapshots/`},
		{"show", 1, `it is the document snapshots/`},
		{"plan", 1, `it is the document snapshots/`},
		{"rebuild", 0, `it is the document snapshots/`},
	}},
	{"an envelope in the folder of another source", func(d *damaged) {
		k := d.last.Key()
		data := d.read(k.String())
		for _, e := range d.signed {
			d.remove(e.Key().String())
		}
		k.Source = "6f1b2c3d-0000-4000-8000-ffffffffffff"
		d.write(k.String(), data)
	}, []run{
		{"list", 0, `damaged.*it is the document snapshots/`},
		{"structure", 3, `damaged: snapshots/.*: it is the document snapshots/`},
		{"plan", 1, `it is the document snapshots/`},
	}},
	{"a snapshot that nobody signed", func(d *damaged) {
		keys, err := store.LoadKeys(store.KeyOptions{
			Recipients: []string{d.recipient.(*age.X25519Recipient).String()}})
		must(d.t, err)
		d.st, err = store.Open(d.t.Context(), store.Options{Bucket: directory.New(d.root), Keys: keys})
		must(d.t, err)
		d.next(func(*store.Envelope) {})
	}, []run{
		{"list", 0, `unsigned`}, {"structure", 12, `signature: .*it is not signed`},
		{"full", 12, `signature: .*it is not signed`}, {"show", 12, `it is not signed`},
		{"diff", 12, `it is not signed`}, {"plan", 12, `it is not signed`},
	}},
	{"a signature that was taken away", func(d *damaged) {
		d.editLast(func(e *envelope) { e.Signature = "" })
	}, []run{
		{"list", 0, `unsigned`}, {"structure", 12, `signature: .*it is not signed`},
		{"plan", 12, `it is not signed`},
	}},
	{"a snapshot that an unknown key signed", func(d *damaged) {
		var err error
		d.st, err = store.Open(d.t.Context(), store.Options{Bucket: directory.New(d.root),
			Keys: d.load(d.t, "other", d.recipient.(*age.X25519Recipient).String())})
		must(d.t, err)
		d.next(func(*store.Envelope) {})
	}, []run{
		{"list", 0, `unknown-signer`}, {"structure", 12, `signature: .*which is not trusted`},
		{"full", 12, `which is not trusted`}, {"show", 12, `which is not trusted`},
		{"diff", 12, `which is not trusted`}, {"plan", 12, `which is not trusted`},
	}},
	{"what was signed was changed", func(d *damaged) {
		d.editLast(func(e *envelope) {
			e.Payload = strings.Replace(e.Payload, `"objects":`, `"objects":1`,
				1)
		})
	}, []run{
		{"list", 0, `damaged.*the signature does not fit the payload`},
		{"structure", 3, `damaged: snapshots/.*the signature does not fit the payload`},
		{"show", 1, `the signature does not fit`},
		{"plan", 1, `the signature does not fit`}, {"rebuild", 0, `the signature does not fit`},
	}},
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
	{"half a prune", (*damaged).halfPrune, []run{
		{"list", 0, `trusted`}, {"structure", 0, `succeeded`}, {"full", 0, `succeeded`},
		{"show", 0, `units: +4`}, {"diff", 1, `there is none, source`}, {"rebuild", 0, `- +1 +0 +0 +0\n`},
		{"prune", 0, `frees: +[1-9][0-9]* keys`},
	}},
	{"no packs at all", func(d *damaged) { must(d.t, os.RemoveAll(d.path("packs"))) }, []run{
		{"structure", 3, `missing: packs/.*: it is not in the store`}, {"full", 3, `missing: packs/`},
		{"sample", 3, `damaged: packs/.*: it is not in the store`}, {"show", 0, `units: +4`},
	}},
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
	}, []run{{"list", 0, `damaged.*belongs to another store`},
		{"structure", 10, `belongs to another store`}, {"plan", 10, `belongs to another store`},
		{"rebuild", 0, `belongs to another store`}}},
	{"a store of a later version", func(d *damaged) {
		d.write("mgmtd.json", bytes.Replace(d.read("mgmtd.json"), []byte(`"format":1`),
			[]byte(`"format":2`), 1))
	}, []run{
		{"list", 1, `read mgmtd.json: format 2 is not known(.|\n)*hint: use a newer version`},
		{"structure", 1, `format 2 is not known`}, {"plan", 1, `format 2 is not known`},
	}},
	{"a snapshot of a later version", func(d *damaged) {
		d.editLast(func(e *envelope) {
			e.Payload = strings.Replace(e.Payload, `"format":1`, `"format":2`, 1)
			e.Signature = d.sign(e.Payload)
		})
	}, []run{
		{"list", 0, `damaged.*format 2 is not known`},
		{"structure", 1, `read snapshots/.*: format 2 is not known(.|\n)*hint: use a newer version`},
		{"plan", 1, `format 2 is not known`},
		{"rebuild", 0, `format 2 is not known`},
	}},
	{"an envelope of 2 MiB", func(d *damaged) {
		d.write(d.last.Key().String(),
			bytes.Repeat([]byte(" "), 2<<20))
	}, []run{
		{"list", 0, `damaged.*it is larger than 1048576 bytes`},
		{"structure", 3, `damaged: snapshots/.*: it is larger than 1048576 bytes`},
		{"plan", 1, `it is larger than 1048576 bytes`},
	}},
	{"an envelope of no bytes", func(d *damaged) { d.write(d.last.Key().String(), nil) }, []run{
		{"list", 0, `damaged.*not a JSON object`},
		{"structure", 3, `damaged: snapshots/.*: not a JSON object`}, {"plan", 1, `not a JSON object`},
	}},
	{"an envelope that is nested deep", func(d *damaged) {
		e := `{"format":1,"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`
		d.editLast(func(f *envelope) { f.Payload, f.Signature = e, d.sign(e) })
	}, []run{{"list", 0, `damaged.*payload: `}, {"structure", 3, `damaged: snapshots/.*: payload: `}}},
	{"an envelope that counts what is not there",
		func(d *damaged) { d.next(func(e *store.Envelope) { e.Counts.Objects++ }) }, []run{
			{"structure", 0, `succeeded`}, {"full", 3,
				`damaged: trees/.*the envelope counts 47 objects, the shards hold 46`},
			{"show", 1, `the envelope counts 47 objects`},
		}},
	{"what an interrupted write leaves, and foreign files", func(d *damaged) {
		for _, key := range []string{"packs/00/.tmp-ABC", ".tmp-X", "snapshots/.tmp-Y",
			"snapshots/readme.txt", "packs/photo.jpg", "lost+found/x", "trees/00/" +
				strings.Repeat("0", 64)} {
			d.write(key, []byte("left behind"))
		}
	}, []run{{"list", 0, `trusted`}, {"structure", 0, `succeeded`}, {"full", 0, `succeeded`},
		{"show", 0, `units: +4`}, {"rebuild", 0, ``}}},
	{"a snapshot that was taken out of the chain",
		func(d *damaged) { d.remove(d.signed[1].Key().String()) }, []run{
			{"structure", 0, `succeeded`}, {"watch", 0,
				`info chain: the snapshot before it, [0-9a-f]+ \(number 2\), is not in the store`},
			{"list", 0, `trusted`},
		}},
	{"the newest snapshot hidden", func(d *damaged) {
		d.check(run{"rebuild", 0, ``})
		d.remove(d.last.Key().String())
	}, []run{{"structure", 0,
		`WARNING(.|\n)*chain: a later snapshot, [0-9a-f]+ \(number 3\), was in the store and is not there now\n +hint: `}, {"list", 0, `trusted`}}},
	{"a snapshot before that is another one", func(d *damaged) {
		d.last = d.signed[1]
		d.editLast(func(e *envelope) {
			e.Payload = strings.Replace(e.Payload, `"writer":"test"`, `"writer":"tset"`, 1)
			e.Signature = d.sign(e.Payload)
		})
	}, []run{{"structure", 0,
		`WARNING(.|\n)*chain: the snapshot before it, [0-9a-f]+, is not the one that it was made after\n +hint: `}}},
}
