package envelope

import "testing"

// TestScopesStayTheSame: retention, overdue schedules and the parent of a snapshot go by the
// digest, so that of a selection must never change.
func TestScopesStayTheSame(t *testing.T) {
	const source = "6f1b2c3d-0000-4000-8000-000000000007"
	ids := map[string]string{}
	for _, tt := range []struct {
		namespaces []string
		selector   string
		want       string
	}{
		{nil, "", ScopeWhole},
		{[]string{"team-a"}, "", "8705c2adf6f84a2680b1920fa7269089"},
		{[]string{"team-b", "team-a", "team-a"}, "", "a32a33165ee45c52d28a801330697b82"},
		{nil, "tier=gold", "7694613d811d6899b9aee1e94e6f001e"},
		{nil, "tier=bronze", "c4033c9a63d3bd28f3a74be576b6e7e6"},
		{[]string{"team-a"}, "tier=gold", "506135095b04c974948b99dc4fa8a063"},
	} {
		got := ScopeOf(source, tt.namespaces, tt.selector, "nightly")
		if got.ID != tt.want || got.Schedule != "nightly" {
			t.Errorf("%v and %q: %+v, want %s", tt.namespaces, tt.selector, got, tt.want)
		}
		if was, ok := ids[got.ID]; ok {
			t.Errorf("%q has the scope of %q", tt.selector, was)
		}
		ids[got.ID] = tt.selector
	}
}
