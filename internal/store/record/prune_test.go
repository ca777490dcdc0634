package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRangesMergeAndExplain(t *testing.T) {
	type rs = []Range
	for name, tt := range map[string]struct{ got, want rs }{
		"merge nothing": {MergeRanges(nil), nil},
		"merge": {MergeRanges(rs{{7, 9}, {1, 2}, {3, 3}, {5, 5}, {8, 8}}),
			rs{{1, 3}, {5, 5}, {7, 9}}},
		"without nothing": {Without(rs{{1, 3}}, nil), rs{{1, 3}}},
		"without the middle": {Without(rs{{1, 3}, {5, 9}}, []int64{9, 2, 4}),
			rs{{1, 1}, {3, 3}, {5, 8}}},
		"without the ends":    {Without(rs{{1, 3}}, []int64{1, 3, 3}), rs{{2, 2}}},
		"without all":         {Without(rs{{1, 2}}, []int64{2, 1}), nil},
		"all explained":       {Unexplained(2, 4, rs{{1, 9}}), nil},
		"none explained":      {Unexplained(2, 4, rs{{1, 1}, {5, 9}}), rs{{2, 4}}},
		"the middle is not":   {Unexplained(2, 9, rs{{1, 3}, {6, 7}}), rs{{4, 5}, {8, 9}}},
		"the beginning isn't": {Unexplained(1, 3, rs{{3, 3}}), rs{{1, 2}}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
