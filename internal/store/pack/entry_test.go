package pack

import (
	"strings"
	"testing"
)

func TestEntryNameIsReadBackExactly(t *testing.T) {
	long := strings.Repeat("n", 253)
	tests := []struct {
		name  string
		entry Entry
		want  string // "" when it must be refused
	}{
		{"namespaced", Entry{"cluster.x-k8s.io", "Cluster", "fleet", "alpha"},
			"cluster.x-k8s.io/Cluster/fleet/alpha.json"},
		{"core group", Entry{"", "Secret", "fleet", "alpha-ca"}, "core/Secret/fleet/alpha-ca.json"},
		{"cluster-scoped", Entry{"", "Namespace", "", "fleet"}, "core/Namespace/_/fleet.json"},
		{"dots in the name", Entry{"apiextensions.k8s.io", "CustomResourceDefinition", "",
			"clusters.cluster.x-k8s.io"},
			"apiextensions.k8s.io/CustomResourceDefinition/_/clusters.cluster.x-k8s.io.json"},
		{"colon in the name", Entry{"rbac.authorization.k8s.io", "ClusterRole", "", "system:node"},
			"rbac.authorization.k8s.io/ClusterRole/_/system:node.json"},
		{"longest name", Entry{"", "Secret", "ns", long}, "core/Secret/ns/" + long + ".json"},
		{"name too long", Entry{"", "Secret", "ns", long + "n"}, ""},
		{"group that means core", Entry{"core", "Secret", "ns", "n"}, ""},
		{"group with a slash", Entry{"a/b", "Secret", "ns", "n"}, ""},
		{"group with dot-dot", Entry{"..", "Secret", "ns", "n"}, ""},
		{"group with an empty label", Entry{"a..b", "Secret", "ns", "n"}, ""},
		{"kind empty", Entry{"", "", "ns", "n"}, ""},
		{"kind with a dot", Entry{"", "..", "ns", "n"}, ""},
		{"namespace that means none", Entry{"", "Secret", "_", "n"}, ""},
		{"namespace with a dot", Entry{"", "Secret", "a.b", "n"}, ""},
		{"namespace with dot-dot", Entry{"", "Secret", "..", "n"}, ""},
		{"name empty", Entry{"", "Secret", "ns", ""}, ""},
		{"name dot-dot", Entry{"", "Secret", "ns", ".."}, ""},
		{"name with a slash", Entry{"", "Secret", "ns", "a/b"}, ""},
		{"name with a backslash", Entry{"", "Secret", "ns", `a\b`}, ""},
		{"name with a zero byte", Entry{"", "Secret", "ns", "a\x00b"}, ""},
		{"name with an escape", Entry{"", "Secret", "ns", "a\x1b[2J"}, ""},
		{"name that is not UTF-8", Entry{"", "Secret", "ns", "a\xff"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := EntryName(tt.entry)
			if tt.want == "" {
				if err == nil {
					t.Errorf("made %q", got)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("%q, %v, want %q", got, err, tt.want)
			}
			if back, err := ParseEntryName(got); err != nil || back != tt.entry {
				t.Errorf("parses back as %+v, %v", back, err)
			}
		})
	}
}

func TestParseEntryNameRefuses(t *testing.T) {
	for _, name := range []string{
		"", "/", "a", "core/Secret/ns", "core/Secret/ns/n", "core/Secret/ns/.json",
		"core/Secret/ns/n.yaml", "core/Secret/ns/n.json/", "/core/Secret/ns/n.json",
		"core//ns/n.json", "core/Secret//n.json", "/Secret/ns/n.json", "core/Secret/ns/../n.json",
		"../core/Secret/n.json", "core/Secret/../n.json",
		"core/Secret/./n.json", "./core/Secret/n.json", "core/Secret/ns/...json", "CORE/Secret/ns/n.json",
		"core/Secret/NS/n.json",
	} {
		if e, err := ParseEntryName(name); err == nil {
			t.Errorf("%q parses as %+v", name, e)
		}
	}
}

func FuzzEntryName(f *testing.F) {
	for _, name := range []string{"core/Secret/fleet/alpha-ca.json",
		"cluster.x-k8s.io/Cluster/fleet/alpha.json", "core/Namespace/_/fleet.json", "../x/y/z.json",
		"core/Secret/ns/..json", "a/b/c/d.json"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		e, err := ParseEntryName(name)
		if err != nil {
			return
		}
		if again, err := EntryName(e); err != nil || again != name {
			t.Errorf("%q became %q, %v", name, again, err)
		}
	})
}
