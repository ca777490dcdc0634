package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// clusterctl is the command line of Cluster API. It is not a part of a lab: tests and benchmarks
// compare a move of it with one of mgmtctl.
func clusterctl() target {
	return target{name: "clusterctl", module: "tools/clusterctl",
		pkg:     capiModule + "/cmd/clusterctl",
		ldflags: versionFlags(capiModule+"/version", current().version)}
}

// ClusterctlVersion is the version of Cluster API that clusterctl is built from. The management
// clusters of a lab run the same one.
func ClusterctlVersion() string { return current().version }

// Clusterctl returns a command of clusterctl. It needs the program that Build makes with
// BuildOptions.Peers. clusterctl reads its configuration from dir and never asks the internet for a
// newer version of itself.
func (h Home) Clusterctl(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	program := h.bin(clusterctl().name)
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("find clusterctl: run `lab build --peers` first: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	return cmd, nil
}
