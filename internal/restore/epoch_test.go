package restore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
)

// TestReleaseMarksTheClusterWithItsEpoch: the mark comes with the release and not before, since
// only then the ownership record has this epoch.
func TestReleaseMarksTheClusterWithItsEpoch(t *testing.T) {
	x := newTrial(t, oneTenant(t, "", false), newMemory(t, "target"))
	mark := func() string { return x.target.get(t, clusterOne).GetAnnotations()[capi.AnnotationEpoch] }
	x.hooks.EpochMark = func(u Unit) string { return "store/" + fmt.Sprint(len(u.Name)) }
	x.spec.NoRelease = true
	if _, err := x.run(t); err != nil || mark() != "" {
		t.Fatalf("%v, mark before the release: %q", err, mark())
	}
	x.spec.NoRelease = false
	if _, err := x.again(t); err != nil || mark() != "store/5" {
		t.Errorf("%v, mark %q", err, mark())
	}
}

// TestI1ClusterKnowsAHigherEpochThanTheStore: the bucket has an old record, or none, and the
// catalog that knew the newest one is lost. The Cluster of the snapshot still carries its epoch.
func TestI1ClusterKnowsAHigherEpochThanTheStore(t *testing.T) {
	for _, tt := range []struct {
		name, store string
		record      int64 // its epoch, 0 for none
		blocked     bool
	}{
		{"the same", "s1", 3, false},
		{"an older record", "s1", 2, true},
		{"no record", "s1", 0, true},
		{"a newer record", "s1", 4, false},
		{"of another store", "s2", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newTrial(t, oneTenant(t, `"mgmtd.dev/epoch":"s1/3","mgmtd.dev/workload-id":"w-1"`,
				false), newMemory(t, "target"))
			owners := map[string]ownership.Record{}
			if tt.record > 0 {
				owners["w-1"] = ownership.Record{By: object.Side{UID: "source"}, Epoch: tt.record,
					Trusted: true}
			}
			p, err := NewPlan(t.Context(), Input{Snapshot: x.snapshot, Contents: x.contents,
				Source: Snapshot{StoreID: tt.store, ID: "s", Source: object.Side{UID: "source"},
					Time: time.Now()}, Target: object.Side{Name: "target", UID: x.target.uid},
				Reader: x.target, Prober: x.target, Kinds: x.target.kinds, Spec: x.spec, Owners: owners})
			if err != nil {
				t.Fatal(err)
			}
			blocked := slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
				return f.Code == object.CodeEpochWentBack && f.Unit == "one/w"
			})
			if blocked != tt.blocked || p.Units[0].Blocked != tt.blocked {
				t.Errorf("blocked %v, findings %v", p.Units[0].Blocked, p.Findings)
			}
		})
	}
}

// TestI1AnOverriddenOwnerThatMayBeAtWorkBlocksItsUnit: without the override, its record does.
func TestI1AnOverriddenOwnerThatMayBeAtWorkBlocksItsUnit(t *testing.T) {
	owner := object.Side{Name: "c", UID: "uid-c"}
	at := time.Now()
	for name, tt := range map[string]struct {
		force object.Forced
		seen  time.Time
		want  []string
	}{
		"not overridden": {nil, at, []string{"one/w: owned-elsewhere"}},
		"seen recently": {object.Forced{object.CodeOwnedElsewhere: "c"}, at,
			[]string{"one/w: owner-seen-recently"}},
		"an old record was put back": {object.Forced{object.CodeOwnedElsewhere: "c",
			object.CodeEpochWentBack: ""}, at, []string{"one/w: owner-seen-recently"}},
		"seen recently, which is overridden": {object.Forced{object.CodeOwnedElsewhere: "c",
			object.CodeOwnerSeenRecently: ""}, at, nil},
		"not seen": {object.Forced{object.CodeOwnedElsewhere: "c"}, time.Time{}, nil},
	} {
		x := newTrial(t, oneTenant(t, `"mgmtd.dev/workload-id":"w-1"`, false), newMemory(t, "target"))
		x.spec.Force = tt.force
		in := Input{Snapshot: x.snapshot, Contents: x.contents,
			Source: Snapshot{StoreID: "s1", ID: "s", Source: object.Side{UID: "source"},
				Time: time.Now()}, Target: object.Side{Name: "target", UID: x.target.uid},
			Reader: x.target, Prober: x.target, Kinds: x.target.kinds, Spec: x.spec,
			Owners: map[string]ownership.Record{"w-1": {By: owner, Epoch: 2, Trusted: true}}}
		if tt.force.Has(object.CodeEpochWentBack) {
			in.Owners["w-1"] = ownership.Record{By: owner, Epoch: 2, Seen: 3, Trusted: true}
		}
		if tt.force != nil {
			in.Overridden = map[string]preflight.Overridden{owner.UID: {Owner: owner, Seen: tt.seen}}
		}
		p, err := NewPlan(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got := errorsOf(p); !slices.Equal(got, tt.want) || p.Units[0].Blocked != (tt.want != nil) {
			t.Errorf("%s: got %q", name, got)
		}
		if tt.force != nil && !p.OwnersSeen[owner.UID].Equal(tt.seen) {
			t.Errorf("%s: the plan says that it was seen at %s", name, p.OwnersSeen[owner.UID])
		}
		if (p.Overridden["w-1"] == owner) != (tt.force != nil) || len(p.Overridden) > 1 {
			t.Errorf("%s: the plan overrides %v", name, p.Overridden)
		}
		in.Spec.NoRelease = true
		if p, err = NewPlan(t.Context(), in); err != nil || tt.force != nil && len(errorsOf(p)) > 0 {
			t.Errorf("%s, and nothing is released: %q, %v", name, errorsOf(p), err)
		}
	}
}

// TestEpochsOfACopyContinueThoseOfItsOrigin: a copy has none of the records, so that none is
// missed, and what is claimed there gets a higher epoch than is known of the origin.
func TestEpochsOfACopyContinueThoseOfItsOrigin(t *testing.T) {
	for name, tt := range map[string]struct {
		mark   string
		origin map[string]int64
		want   int64
	}{
		"by the mark of the Cluster": {`"mgmtd.dev/epoch":"s1/3",`, map[string]int64{}, 3},
		"by what this host has seen": {`"mgmtd.dev/epoch":"s1/3",`, map[string]int64{"w-1": 5}, 5},
		"of another store":           {`"mgmtd.dev/epoch":"s2/3",`, map[string]int64{"w-2": 5}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t, oneTenant(t, tt.mark+`"mgmtd.dev/workload-id":"w-1"`, false),
				newMemory(t, "target"))
			p, err := NewPlan(t.Context(), Input{Snapshot: x.snapshot, Contents: x.contents,
				Source: Snapshot{StoreID: "s1", ID: "s", Source: object.Side{UID: "source"},
					Time: time.Now()}, Target: object.Side{Name: "target", UID: x.target.uid},
				Reader: x.target, Prober: x.target, Kinds: x.target.kinds, Spec: x.spec,
				OriginEpochs: tt.origin})
			if err != nil {
				t.Fatal(err)
			}
			if p.OriginEpochs["w-1"] != tt.want || p.Epochs["w-1"] != 0 || p.Units[0].Blocked {
				t.Errorf("epochs %v, of the origin %v, blocked %v: %v", p.Epochs, p.OriginEpochs,
					p.Units[0].Blocked, p.Findings)
			}
		})
	}
}
