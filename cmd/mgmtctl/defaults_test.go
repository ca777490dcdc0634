package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/service"
)

// TestDefaultsInTextsAreThoseOfTheCode compares what operators read about defaults with the
// constants. Help, API and code once said 8, 8 and 32: a move then paused four times as many
// workload clusters as its operator expected.
func TestDefaultsInTextsAreThoseOfTheCode(t *testing.T) {
	for command, n := range map[string]int{"restore run": service.DefaultRestoreConcurrency,
		"move run": service.DefaultMoveConcurrency} {
		help := runner{fake: newFake()}.run(t, command+" --help").want(t, 0).stdout
		for _, want := range []string{
			fmt.Sprintf("workload clusters at once (default %d)", n),
			fmt.Sprintf("once N have failed; 0 means no limit (default %d)", service.DefaultMaxFailures),
			fmt.Sprintf("to be healthy (default %.0fm, and 1s for each one released)",
				service.DefaultPostFlight.Minutes()),
		} {
			if !strings.Contains(strings.Join(strings.Fields(help), " "), want) {
				t.Errorf("the help of %s does not have %q", command, want)
			}
		}
	}
	tests := []struct {
		file string
		text string
	}{
		{"../../proto/mgmt/v1/restore.proto", fmt.Sprintf("0 means %d for a restore and %d for a move",
			service.DefaultRestoreConcurrency, service.DefaultMoveConcurrency)},
		{"../../proto/mgmt/v1/restore.proto", fmt.Sprintf("%d when it is not set; 0 means no limit",
			service.DefaultMaxFailures)},
		{"../../proto/mgmt/v1/restore.proto", fmt.Sprintf("%.0f minutes, and one second for each unit",
			service.DefaultPostFlight.Minutes())},
		{"../../docs/move.md", fmt.Sprintf("once %d have failed", service.DefaultMaxFailures)},
		{"../../proto/mgmt/v1/restore.proto", fmt.Sprintf("%.0f minutes when it is not set; 0 means no",
			service.DefaultMaxPause.Minutes())},
		{"../../docs/move.md", fmt.Sprintf("`--max-pause`, %.0f minutes by default",
			service.DefaultMaxPause.Minutes())},
		{"../../docs/outage.md", fmt.Sprintf("once %d have failed", service.DefaultMaxFailures)},
		{"../../docs/move.md",
			fmt.Sprintf("workload clusters, %d by default", service.DefaultMoveConcurrency)},
	}
	for _, tt := range tests {
		text, err := os.ReadFile(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		if words := strings.Join(strings.Fields(string(text)), " "); !strings.Contains(words, tt.text) {
			t.Errorf("%s does not have %q", tt.file, tt.text)
		}
	}
}

// TestOnlyWhatArmsTheAdmissionPolicyPromisesIt: the help of a move once named a policy that nothing
// wrote.
func TestOnlyWhatArmsTheAdmissionPolicyPromisesIt(t *testing.T) {
	arms := map[string]bool{"mgmtctl move run": true, "mgmtctl mgmt fence": true}
	for _, cmd := range commands(t) {
		words := strings.Join(strings.Fields(cmd.Long), " ")
		is := strings.Contains(words, "admission policy mgmtd-moved")
		if is != arms[cmd.CommandPath()] {
			t.Errorf("%s: the help names the policy: %v", cmd.CommandPath(), is)
		}
	}
}

// TestStoreHelpNamesBothSchemes: the help once named file:// only, although s3:// works.
func TestStoreHelpNamesBothSchemes(t *testing.T) {
	help := runner{fake: newFake()}.run(t, "snapshot list --help").want(t, 0).stdout
	for _, scheme := range []string{"file:///", "s3://bucket/prefix?endpoint="} {
		if !strings.Contains(help, scheme) {
			t.Errorf("the help of --store does not name %s", scheme)
		}
	}
}
