package service

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// attack is one thing that somebody does to a bucket, and what reports it.
type attack struct {
	name string
	// do does it. It gets how often it was done before, and returns the keys that it wrote or hid.
	do func(d *attackedDay, n int) []string
	// reports are the codes of findings that name one of the keys, or the snapshot that one is of.
	reports []object.Code
	// repaired: a plan of a repair has a row for each of the keys.
	repaired bool
	// counted: the statistics of the store count them as what nothing of the store names.
	counted bool
}

// read returns the bytes of a key of the bucket.
func (d *attackedDay) read(key string) []byte {
	d.t.Helper()
	data, err := bucket.ReadAll(d.t.Context(), d.bucket, key, 1<<26)
	if err != nil {
		d.t.Fatal(err)
	}
	return data
}

// newestKey returns the key of the snapshot that was taken last.
func (d *attackedDay) newestKey() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var key string
	var sequence int64
	for _, of := range d.taken {
		if of.Sequence > sequence {
			key, sequence = of.Key().String(), of.Sequence
		}
	}
	return key
}

// onNewest returns a key of the kind that the newest snapshot names.
func (d *attackedDay) onNewest(prefix string) string {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], nil, false)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var newest store.Signed
	for _, of := range d.taken {
		if of.Sequence > newest.Sequence {
			newest = of.Signed
		}
	}
	tree, err := st.GetTree(d.t.Context(), newest.Tree)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, key := range slices.Concat(tree.Packs, tree.Shards, []store.Key{newest.Tree}) {
		if strings.HasPrefix(string(key), prefix) {
			return string(key)
		}
	}
	d.t.Fatalf("the newest snapshot names nothing in %s", prefix)
	return ""
}

var contentFolders = []string{"packs/", "shards/", "trees/"}

// content returns a key of each kind of content that the newest snapshot names.
func (d *attackedDay) content() (keys []string) {
	for _, folder := range contentFolders {
		keys = append(keys, d.onNewest(folder))
	}
	return keys
}

// records returns a key in each folder of records that shows one: the last one by its name, which
// is the newest where names have times.
func (d *attackedDay) records() (keys []string) {
	d.t.Helper()
	for _, folder := range []string{"pins/" + d.source.UID + "/", "checks/" + d.source.UID + "/",
		"owners/", "prunes/"} {
		list := slices.DeleteFunc(d.bucket.Keys(folder), func(key string) bool {
			return d.planted[key]
		})
		if len(list) > 0 { // else all are hidden
			keys = append(keys, list[len(list)-1])
		}
	}
	return keys
}

func junk(n int) []byte { return []byte(strings.Repeat("junk ", n+1)) }

// put writes junk to keys, which may exist.
func (d *attackedDay) put(n int, keys ...string) []string {
	for _, key := range keys {
		d.bucket.Overwrite(key, junk(n))
	}
	return keys
}

// plant is put for keys that nobody else writes.
func (d *attackedDay) plant(n int, keys ...string) []string {
	for _, key := range keys {
		d.planted[key] = true
	}
	return d.put(n, keys...)
}

// hide puts delete markers on keys.
func (d *attackedDay) hide(keys ...string) []string {
	for _, key := range keys {
		d.bucket.Hide(key)
	}
	return keys
}

// The attacks of somebody who can put beside the keys of the store.
var (
	plantUnsigned = attack{name: "plant unsigned snapshots",
		do: func(d *attackedDay, n int) []string {
			key := fmt.Sprintf("snapshots/%s/99991231T235959.999Z-%012x.json", d.source.UID, n)
			d.bucket.Overwrite(key, []byte(`{"payload":"{\"format\":2}","signature":""}`))
			return []string{key}
		}, reports: []object.Code{object.CodePassedOver, object.CodeEnvelopeUnreadable}}
	plantSources = attack{name: "plant sources",
		do: func(d *attackedDay, n int) (keys []string) {
			for i := range 20 {
				keys = append(keys, fmt.Sprintf("snapshots/junk-%d-%d/20300101T000000.000Z-000000000000.json",
					n, i))
			}
			return d.put(n, keys...)
		}, reports: []object.Code{object.CodeEnvelopeUnreadable}}
	plantPrune = attack{name: "plant prune records",
		do: func(d *attackedDay, n int) []string {
			key := fmt.Sprintf("prunes/20300101T000000.000Z-%012x.json", n)
			d.planted[key] = true
			d.bucket.Overwrite(key,
				[]byte(`{"payload":"{\"format\":1,\"removed\":[{\"from\":1,\"to\":9999}]}","signature":""}`))
			return []string{key}
		}, reports: []object.Code{object.CodePruneRecord}}
	plantRecords = attack{name: "plant records",
		do: func(d *attackedDay, n int) []string {
			name := strings.TrimSuffix(strings.TrimPrefix(d.newestKey(), "snapshots/"), ".json")
			return d.plant(n, "pins/"+name+".json",
				"checks/"+name+fmt.Sprintf("/20300101T000000.000Z-%012x.json", n),
				fmt.Sprintf("owners/nobody-%d.json", n),
				fmt.Sprintf("operations/20300101-000000-%04x/00000001.json.zst.age", n))
		}, reports: []object.Code{object.CodeRecordUnusable}}
	plantContent = attack{name: "plant content",
		do: func(d *attackedDay, n int) []string {
			sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, n)))
			return d.put(n, "packs/"+sum[:2]+"/"+sum+".tar.zst.age",
				"shards/"+sum[:2]+"/"+sum+".json.zst.age", "trees/"+sum[:2]+"/"+sum+".json.zst",
				fmt.Sprintf("packs/readme-%d", n), fmt.Sprintf("nothing-%d/of/ours", n))
		}, counted: true}
)

// The attacks of somebody who can put over the keys of the store.
var (
	overwriteEnvelope = attack{name: "overwrite envelopes",
		do:      func(d *attackedDay, n int) []string { return d.put(n, d.newestKey()) },
		reports: []object.Code{object.CodePassedOver}, repaired: true}
	replayEnvelope = attack{name: "replay envelopes",
		do: func(d *attackedDay, _ int) []string {
			newest := d.newestKey()
			for _, key := range d.bucket.Keys("snapshots/" + d.source.UID + "/2") {
				if key != newest {
					d.bucket.Overwrite(newest, d.read(key))
					return []string{newest}
				}
			}
			d.t.Error("there is no older envelope")
			return nil
		}, reports: []object.Code{object.CodePassedOver}, repaired: true}
	overwriteContent = attack{name: "overwrite content",
		do:      func(d *attackedDay, n int) []string { return d.put(n, d.content()...) },
		reports: []object.Code{object.CodeDamaged}, repaired: true}
	overwriteStore = attack{name: "overwrite mgmtd.json",
		do: func(d *attackedDay, n int) []string { return d.put(n, "mgmtd.json") }, repaired: true}
	overwriteRecords = attack{name: "overwrite records",
		do:      func(d *attackedDay, n int) []string { return d.put(n, d.records()...) },
		reports: []object.Code{object.CodeRecordUnusable, object.CodePruneRecord}, repaired: true}
)

// The attacks of somebody who can place delete markers.
var (
	hideEnvelope = attack{name: "hide envelopes",
		do:      func(d *attackedDay, _ int) []string { return d.hide(d.newestKey()) },
		reports: []object.Code{object.CodeSnapshotMissing}, repaired: true}
	hideContent = attack{name: "hide content",
		do:      func(d *attackedDay, _ int) []string { return d.hide(d.content()...) },
		reports: []object.Code{object.CodeMissing}, repaired: true}
	hideStore = attack{name: "hide mgmtd.json",
		do: func(d *attackedDay, _ int) []string { return d.hide("mgmtd.json") }, repaired: true}
	hideRecords = attack{name: "hide records",
		do: func(d *attackedDay, _ int) []string { return d.hide(d.records()...) }, repaired: true}
)

// wrongClock is what a host does whose clock is ten years ahead.
var wrongClock = attack{name: "sign with a clock ahead",
	do: func(d *attackedDay, _ int) (keys []string) {
		d.setClock(10 * 365 * 24 * time.Hour)
		defer d.setClock(0)
		for _, s := range d.cfg.Schedules {
			d.take(s.Name)
			keys = append(keys, d.newestKey())
		}
		return keys
	}, reports: []object.Code{object.CodeClock}}

// The attackers, by what their credentials allow.
var (
	putsBeside = []attack{plantUnsigned, plantSources, plantPrune, plantRecords, plantContent}
	putsOver   = []attack{overwriteEnvelope, overwriteContent, overwriteStore, replayEnvelope,
		overwriteRecords}
	hides = []attack{hideEnvelope, hideContent, hideStore, hideRecords}
)

// attack does one thing, and asserts what must report it at once.
func (d *attackedDay) attack(a attack, n int) {
	d.t.Helper()
	var before retention.Usage
	if a.counted {
		before = d.stats()
	}
	keys := a.do(d, n)
	d.attacked[a.name] = append(d.attacked[a.name], keys...)
	if a.counted {
		after := d.stats()
		content, other := after.Unnamed.Keys-before.Unnamed.Keys,
			after.Stored[store.ClassOther].Keys-before.Stored[store.ClassOther].Keys
		if content+other != int64(len(keys)) || content != int64(len(contentFolders)) {
			d.t.Errorf("%s: the statistics count %d and %d of %d keys", a.name, content, other, len(keys))
		}
	}
	if slices.Contains(a.reports, object.CodeDamaged) ||
		slices.Contains(a.reports, object.CodeMissing) {
		d.verify() // before something newer is the newest
	}
	if !a.repaired {
		return
	}
	plan, err := d.open().PlanRepair(d.t.Context(), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, key := range keys {
		if !slices.ContainsFunc(plan.Repairs, func(r store.Repair) bool { return r.Key == key }) {
			d.t.Errorf("%s: a plan of a repair does not have %s", a.name, key)
		}
	}
}

// open opens the store without an identity.
func (d *attackedDay) open() *store.Store {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], nil, false)
	if err != nil {
		d.t.Fatalf("the store does not open: %v", err)
	}
	return st
}

func (d *attackedDay) stats() retention.Usage {
	d.t.Helper()
	usage, err := retention.Measure(d.t.Context(), d.open())
	if err != nil {
		d.t.Fatal(err)
	}
	return *usage
}

// assertAttacksReported asserts that operations reported each kind of attack that was made: with a
// finding of each of its codes that names one of its keys, or the snapshot of one.
func (d *attackedDay) assertAttacksReported(attacks []attack) {
	d.t.Helper()
	messages := d.messages()
	for _, a := range attacks {
		keys := d.attacked[a.name]
		if len(keys) == 0 {
			d.t.Errorf("%s: nobody did it", a.name)
		}
		for _, code := range a.reports {
			if !slices.ContainsFunc(messages[code], func(text string) bool {
				return slices.ContainsFunc(keys, func(key string) bool { return namesKey(text, key) })
			}) {
				d.t.Errorf("%s: no %s names one of %q:\n%s", a.name, code, keys,
					strings.Join(messages[code], "\n"))
			}
		}
	}
}

// namesKey reports whether a text names a key, or the snapshot whose envelope it is.
func namesKey(text, key string) bool {
	if strings.Contains(text, key) {
		return true
	}
	of, err := store.ParseEnvelopeKey(key)
	return err == nil && strings.Contains(text, string(of.ID))
}

// assertReported asserts that the operations of the day, or the verify after it, reported each of
// the codes.
func (d *attackedDay) assertReported(codes ...object.Code) {
	d.t.Helper()
	messages := d.messages()
	for _, code := range codes {
		if len(messages[code]) == 0 {
			d.t.Errorf("%s was not reported; reported: %v", code, messages)
		}
	}
}

// TestAFindingNamesAnEnvelopeByItsKeyOrItsID: either is enough for an operator to search for it.
func TestAFindingNamesAnEnvelopeByItsKeyOrItsID(t *testing.T) {
	const key = "snapshots/uid/20260102T030405.678Z-0123456789ab.json"
	for text, want := range map[string]bool{"see " + key: true, "snapshot 0123456789ab": true,
		"snapshot ba9876543210": false} {
		if namesKey(text, key) != want {
			t.Errorf("%q names %s: %v", text, key, !want)
		}
	}
}
