package verify

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/store"
)

// TestSamplesOfAllSubsetsCompareAllObjects: once each.
func TestSamplesOfAllSubsetsCompareAllObjects(t *testing.T) {
	f := newFixture(t)
	e := f.take()
	all := f.run(f.options(e, store.LevelFull)).Verification.Objects
	const of = 3
	var sum int64
	for part := 1; part <= of; part++ {
		o := f.options(e, store.LevelSample)
		o.Subset = store.Subset{Part: part, Of: of}
		r := f.run(o)
		if again := f.run(o); r.Err() != nil || again.Verification.Objects != r.Verification.Objects {
			t.Errorf("part %d: %v, %d and %d objects", part, r.Err(), r.Verification.Objects,
				again.Verification.Objects)
		}
		sum += r.Verification.Objects
	}
	if sum != all || all == 0 {
		t.Errorf("the samples compared %d of %d objects", sum, all)
	}
}

func TestASubsetIsOfASampleAndNoPercentage(t *testing.T) {
	subset := store.Subset{Part: 1, Of: 2}
	for _, c := range []struct {
		level   store.VerifyLevel
		percent int
		subset  store.Subset
		ok      bool
	}{
		{store.LevelSample, 0, subset, true},
		{store.LevelFull, 0, store.Subset{}, true},
		{store.LevelSample, 10, store.Subset{}, true},
		{store.LevelFull, 0, subset, false},
		{store.LevelStructure, 0, subset, false},
		{store.LevelSample, 10, subset, false},
		{store.LevelSample, 0, store.Subset{Part: 3, Of: 2}, false},
		{store.LevelSample, 0, store.Subset{Part: 1}, false},
	} {
		if err := CheckSubset(c.level, c.percent, c.subset); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
