package service

import (
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// chain returns what a restore of a snapshot finds after it, and when the source was last seen.
func (d *attackedDay) chain(of store.Signed) (chainOf, time.Time) {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], d.id, false)
	if err != nil {
		d.t.Fatal(err)
	}
	c, err := (&restoreInputs{store: st, signed: of}).chain(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	seen, _, err := lastStored(d.t.Context(), st, d.source.UID)
	if err != nil {
		d.t.Fatal(err)
	}
	return c, seen
}

// newestOf returns the snapshot of a schedule that was taken last.
func (d *attackedDay) newestOf(name string) store.Signed {
	d.mu.Lock()
	defer d.mu.Unlock()
	var newest store.Signed
	for _, of := range d.taken {
		if of.Scope.Schedule == name && of.Sequence > newest.Sequence {
			newest = of.Signed
		}
	}
	return newest
}

// TestTheNewestSnapshotIsSaidToBeTheNewest: neither a name of the year 9999 that anybody wrote, nor
// a snapshot of a host whose clock was ahead, makes the newest snapshot an old one, or the source
// one that was seen a moment ago for years to come. What really is newer is reported.
func TestTheNewestSnapshotIsSaidToBeTheNewest(t *testing.T) {
	d := newAttackedDay(t, faultbucket.NewVersioned())
	defer d.close()
	d.take("all")
	first := d.newestOf("all")
	d.attack(plantUnsigned, 0)
	if c, seen := d.chain(first); !c.newer.IsZero() || seen.After(time.Now()) {
		t.Errorf("beside an unsigned one: newer %v, last seen %v", c.newer, seen)
	}
	d.setClock(10 * 365 * 24 * time.Hour)
	d.take("all")
	ahead := d.newestOf("all")
	if c, seen := d.chain(first); !c.newer.Equal(ahead.Time) || seen.After(time.Now()) {
		t.Errorf("of the one before: newer %v, want %v; last seen %v", c.newer, ahead.Time, seen)
	}
	d.setClock(0)
	d.take("all")
	newest := d.newestOf("all")
	if c, seen := d.chain(newest); !c.newer.IsZero() || len(c.gaps) != 1 ||
		!seen.Equal(newest.Time) {
		t.Errorf("of the newest: %+v, last seen %v", c, seen)
	}
	if c, _ := d.chain(ahead); !c.newer.Equal(newest.Time) {
		t.Errorf("of one that was taken ahead: newer %v, want %v", c.newer, newest.Time)
	}
	d.take("team")
	if c, _ := d.chain(newest); !c.newer.IsZero() {
		t.Errorf("a partial snapshot is newer than a whole one: %v", c.newer)
	}
	if c, _ := d.chain(d.newestOf("team")); !c.newer.IsZero() {
		t.Errorf("a whole snapshot with a lower number is newer: %v", c.newer)
	}
	d.bucket.Hide(ahead.Key().String())
	if c, _ := d.chain(first); len(c.gaps) < 2 {
		t.Errorf("a gap after the chosen one is not reported: %v", c.gaps)
	}
}
