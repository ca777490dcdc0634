package measured

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRecordedFiguresAreThoseOfARun: the demo prints them, so none may be missing, and what is
// checked in is what Write makes.
func TestRecordedFiguresAreThoseOfARun(t *testing.T) {
	m, err := Recorded()
	if err != nil {
		t.Fatal(err)
	}
	if m.Date == "" || m.Clusterctl == "" || m.Workloads == 0 || m.Machines == 0 || m.Times == 0 {
		t.Errorf("something is missing: %+v", m)
	}
	for name, f := range map[string]Figures{"clusterctl": m.ClusterctlFigures,
		"mgmtctl": m.MgmtctlFigures} {
		if f.Command.Duration <= 0 || f.Pause.Duration <= 0 ||
			f.LongestPause.Duration < f.Pause.Duration {
			t.Errorf("figures of %s: %+v", name, f)
		}
	}
	path := filepath.Join(t.TempDir(), "written.json")
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	if written, err := os.ReadFile(path); err != nil || string(written) != string(recorded) {
		t.Errorf("written again: %v\n%s", err, written)
	}
}
