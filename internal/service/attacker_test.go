package service

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// attack is one thing that somebody does to a bucket. It gets how often it was done before.
type attack func(d *attackedDay, n int)

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
	keys := d.bucket.Keys(prefix)
	return keys[len(keys)-1]
}

func junk(n int) []byte { return []byte(strings.Repeat("junk ", n+1)) }

// The attacks of somebody who can only put, by what they do.
var (
	plantUnsigned attack = func(d *attackedDay, n int) {
		d.bucket.Overwrite(fmt.Sprintf("snapshots/%s/99991231T235959.999Z-%012x.json", d.source.UID, n),
			[]byte(`{"payload":"{\"format\":2}","signature":""}`))
	}
	plantSources attack = func(d *attackedDay, n int) {
		for i := range 20 {
			d.bucket.Overwrite(fmt.Sprintf("snapshots/junk-%d-%d/20300101T000000.000Z-000000000000.json",
				n, i), junk(n))
		}
	}
	overwriteEnvelope attack = func(d *attackedDay, n int) {
		d.bucket.Overwrite(d.newestKey(), junk(n))
	}
	replayEnvelope attack = func(d *attackedDay, _ int) {
		newest := d.newestKey()
		for _, key := range d.bucket.Keys("snapshots/" + d.source.UID + "/2") {
			if key != newest {
				d.bucket.Overwrite(newest, d.read(key))
				return
			}
		}
	}
	overwriteContent attack = func(d *attackedDay, n int) {
		for _, prefix := range []string{"packs/", "shards/", "trees/"} {
			d.bucket.Overwrite(d.onNewest(prefix), junk(n))
		}
	}
	overwriteStore attack = func(d *attackedDay, n int) { d.bucket.Overwrite("mgmtd.json", junk(n)) }
	plantPrune     attack = func(d *attackedDay, n int) {
		d.bucket.Overwrite(fmt.Sprintf("prunes/20300101T000000.000Z-%012x.json", n),
			[]byte(`{"payload":"{\"format\":1,\"removed\":[{\"from\":1,\"to\":9999}]}","signature":""}`))
	}
)

// assertReported asserts that the operations of the day, or the verify after it, reported each of
// the codes.
func (d *attackedDay) assertReported(codes ...object.Code) {
	d.t.Helper()
	reported := d.reported()
	for _, code := range codes {
		if reported[code] == 0 {
			d.t.Errorf("%s was not reported; reported: %v", code, reported)
		}
	}
}

// TestADayWithAnAttacker lets the schedules of a daemon run for a day, while somebody with access
// to the bucket does one thing after the other, each half an hour. At the end the newest snapshot
// of each scope is found, and can be read, and what was done is reported.
func TestADayWithAnAttacker(t *testing.T) {
	for _, tt := range []struct {
		name    string
		attacks []attack
		reports []object.Code
	}{
		{"nobody", nil, nil},
		{"puts beside snapshots", []attack{plantUnsigned, plantSources, plantPrune},
			[]object.Code{object.CodePassedOver}},
		{"puts over everything", []attack{overwriteEnvelope, overwriteContent, overwriteStore,
			replayEnvelope}, []object.Code{object.CodePassedOver}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d := newAttackedDay(t, faultbucket.NewVersioned())
				defer d.close()
				d.pass(2*time.Hour + time.Minute)
				for n := range 44 {
					d.pass(30 * time.Minute)
					if len(tt.attacks) > 0 {
						tt.attacks[n%len(tt.attacks)](d, n)
					}
				}
				d.assertNewest()
				d.verify()
				d.assertReported(tt.reports...)
				if tt.attacks == nil {
					d.assertQuiet()
				}
			})
		})
	}
}

// TestAClockThatWasTenYearsAhead lets the clock of the daemon's host be ahead for an hour: after
// that the schedules go on, nothing good was removed, and the newest snapshot is the last one.
func TestAClockThatWasTenYearsAhead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newAttackedDay(t, faultbucket.NewVersioned())
		defer d.close()
		d.pass(8 * time.Hour)
		d.setClock(10 * 365 * 24 * time.Hour)
		d.pass(time.Hour)
		wrong := d.newestKey()
		d.setClock(0)
		d.pass(8*time.Hour + time.Minute)
		if d.newestKey() == wrong {
			t.Error("no snapshot was taken after the clock was right again")
		}
		d.assertNewest()
		d.verify()
	})
}

func (d *attackedDay) close() {
	if err := d.Close(); err != nil {
		d.t.Error(err)
	}
}

// assertQuiet asserts that a day without an attacker has no finding.
func (d *attackedDay) assertQuiet() {
	d.t.Helper()
	reported := d.reported()
	if len(reported) > 0 {
		d.t.Errorf("reported without a reason: %v", reported)
	}
}
