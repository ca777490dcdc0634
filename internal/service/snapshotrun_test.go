package service

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

func TestASnapshotThatLacksMostOfTheOneBeforeIsReported(t *testing.T) {
	for _, tt := range []struct {
		before, now int64
		shrunk      bool
	}{{4033, 12, true}, {4033, 0, true}, {4033, 3000, false}, {120, 60, false}, {12, 4033, false},
		{300, 150, true}, {300, 151, false}} {
		f, shrunk := checkShrunk(store.Counts{Objects: tt.now}, &store.Counts{Objects: tt.before})
		if shrunk != tt.shrunk || shrunk && (f.Code != object.CodeShrunk || f.Hint == "") {
			t.Errorf("%d after %d: shrunk %v, %v", tt.now, tt.before, shrunk, f)
		}
	}
	if _, shrunk := checkShrunk(store.Counts{}, nil); shrunk {
		t.Error("the first snapshot is shrunk")
	}
}
