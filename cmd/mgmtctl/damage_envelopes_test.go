package main

import (
	"bytes"
	"strings"

	"filippo.io/age"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// damagedEnvelopes are stores whose envelopes, signatures or chain are not as a writer left them.
var damagedEnvelopes = []damageRow{
	{"an old envelope under a new name", func(d *damaged) {
		k := d.last.Key()
		k.Time, k.ID = k.Time.AddDate(0, 0, 1), "0123456789ab"
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
