package graph

import "testing"

// TestSelectorsThatDifferInSpellingHaveOneForm: the scope of snapshots is a digest of it.
func TestSelectorsThatDifferInSpellingHaveOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		" ":                                     "",
		"tier=gold":                             "tier=gold",
		"tier == gold":                          "tier=gold",
		"tier in (gold)":                        "tier=gold",
		"tier in (gold, gold)":                  "tier=gold",
		"tier notin (gold)":                     "tier!=gold",
		"tier!=gold":                            "tier!=gold",
		"b=2,a=1,b=2":                           "a=1,b=2",
		"tier!=gold,tier":                       "tier,tier!=gold",
		"tier,tier!=gold":                       "tier,tier!=gold",
		"region in (us,eu),!old":                "!old,region in (eu,us)",
		"region notin (us,eu)":                  "region notin (eu,us)",
		"n>1,n<4":                               "n<4,n>1",
		"tier=":                                 "tier=",
		"tier in ()":                            "tier=",
		"tier in (,a)":                          "tier in (,a)",
		"example.com/tier=gold,example.com/a=b": "example.com/a=b,example.com/tier=gold",
	} {
		s, err := ParseSelector(text)
		if err != nil || s.String() != want || s.Everything() != (want == "") {
			t.Errorf("%q is %q, want %q; %v", text, s, want, err)
		}
		again, err := ParseSelector(s.String())
		if err != nil || again.String() != want {
			t.Errorf("%q is read as %q, %v", s, again, err)
		}
		for _, set := range []map[string]string{nil, {"tier": "gold"}, {"tier": ""}, {"region": "eu"},
			{"n": "2"}, {"a": "1", "b": "2"}, {"tier": "a"}, {"old": ""}, {"region": "asia"}} {
			if s.Matches(set) != again.Matches(set) {
				t.Errorf("%q and its form %q differ about %v", text, s, set)
			}
		}
	}
	for _, text := range []string{"tier in", "=gold", "tier=a b", ",", "a=b,,c"} {
		if s, err := ParseSelector(text); err == nil && s.Everything() {
			t.Errorf("%q selects everything", text)
		}
	}
	if !(Selector{}).Matches(nil) || !(Selector{}).Everything() {
		t.Error("the zero value does not select all")
	}
}
