//go:build api

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runbookBlocks finds what a runbook asks its reader to type. Most blocks are in a list.
var runbookBlocks = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")

// blocksOf returns the blocks of a runbook.
func blocksOf(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", file))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range runbookBlocks.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// TestAPIRunbooks types every command of docs/move.md and docs/outage.md. First workload clusters
// move from a to b. Then b is lost, and a is the target. The outage is typed twice: with the file
// of the daemon, and as from another host with variables only, which adopts what the first one
// released.
func TestAPIRunbooks(t *testing.T) {
	servers.Clear(t)
	servers.Fleet(t, 0, "--namespace-prefix", "runbook-", "--workloads", "2", "--machines", "1",
		"--fast")
	servers.Acknowledge(t, 0)
	servers.Acknowledge(t, 1)
	dir := runbookFolder(t)
	typed(t, dir, `mgmtctl keygen --out .
sed -i "s/RECIPIENT/$(cat recipient.txt)/" mgmtd.yaml
mgmtctl --standalone --config mgmtd.yaml snapshot create --source a
`)
	typeMove(t, dir)
	// b is lost: its snapshots are in a store of their own.
	typed(t, dir, `sed -i "s/path: moves/path: store/" mgmtd.yaml
mgmtctl --standalone --config mgmtd.yaml snapshot create --source b
cp a.kubeconfig target.kubeconfig
sed -i "s/b.kubeconfig/lost.kubeconfig/" mgmtd.yaml
`)
	typeOutage(t, dir)
}

func typeMove(t *testing.T, dir string) {
	t.Helper()
	move := strings.Join(blocksOf(t, "move.md"), "")
	for _, command := range []string{"mgmt check", "move plan", "move run", "operation show",
		"operation resume", "operation accept", "operation rollback", "snapshot create"} {
		if !strings.Contains(move, "mgmtctl "+command) {
			t.Errorf("no block of docs/move.md has %s", command)
		}
	}
	for pattern, more := range map[string]string{
		"move run":           " --yes",                       // there is no terminal to ask on
		"mgmt check":         " || test $$? -eq 3",           // the bare servers have no providers
		"operation accept":   " || test $$? -eq 2",           // it has passed the checks
		"operation rollback": " && exit 1 || test $$? -eq 2", // all of it is moved
	} {
		move = regexp.MustCompile(`(?m)`+pattern+` .*$`).ReplaceAllString(move, "$0"+more)
	}
	move = strings.NewReplacer(" ID", " latest", "NAMESPACE/NAME",
		"runbook-team-0000/w-00000", "SOURCE", "a", "TARGET", "b", "mgmtctl ",
		"mgmtctl --standalone ").Replace(move)
	says(t, typed(t, dir, "export MGMTCTL_CONFIG=mgmtd.yaml\n"+move), "2 retired", "succeeded")
}

func typeOutage(t *testing.T, dir string) {
	t.Helper()
	outage := blocksOf(t, "outage.md")
	if len(outage) < 6 {
		t.Fatalf("only %d blocks in docs/outage.md", len(outage))
	}
	withFile, withVariables, steps := outage[0], outage[1], strings.Join(outage[2:], "")
	// There is no terminal to ask on.
	steps = regexp.MustCompile(`(?m)restore run .*$`).ReplaceAllString(steps, "$0 --yes")
	// Its last snapshot is seconds old.
	const afterwards = "mgmtctl --standalone snapshot create --source-kubeconfig target.kubeconfig"
	text, err := os.ReadFile("../../docs/outage.md")
	if err != nil || !strings.Contains(string(text), "`"+afterwards+"`") {
		t.Errorf("docs/outage.md does not say %s: %v", afterwards, err)
	}
	steps = strings.ReplaceAll(steps, "--source-is-gone",
		"--source-is-gone --force source-seen-recently")
	says(t, typed(t, dir, withFile+steps), "trusted", "2 released", "succeeded")
	withVariables = regexp.MustCompile(`'s3://.*'`).ReplaceAllString(withVariables, "store")
	withVariables = strings.ReplaceAll(withVariables, "age1...", "$(cat recipient.txt)")
	// It comes last: it makes a second source, between which the others would have to choose.
	says(t, typed(t, dir, "export XDG_STATE_HOME=$PWD/other\n"+withVariables+steps+afterwards),
		"trusted", "2 released", "succeeded", "mgmt-1")
}

// runbookFolder makes the folder of an operator: kubeconfigs and the file of a daemon.
func runbookFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(programs(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b"} {
		kubeconfig, err := os.ReadFile(servers.Options(i).KubeconfigFile)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name+".kubeconfig", string(kubeconfig))
	}
	write(t, dir, "mgmtd.yaml", `apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters:
    - {name: a, kubeconfigFile: a.kubeconfig}
    - {name: b, kubeconfigFile: b.kubeconfig}
  recipients: [RECIPIENT]
  signingKeyFile: signing.key
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main}
spec: {provider: mgmtd.dev/directory, config: {path: moves}}
`)
	return dir
}

// typed types commands into one shell and returns what it printed.
func typed(t *testing.T, dir, commands string) string {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "bash", "-c", "set -euxo pipefail\n"+commands)
	shell.Dir = dir
	shell.Env = []string{"PATH=" + dir + "/bin:" + os.Getenv("PATH"), "HOME=" + dir}
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func says(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("the output does not say %q:\n%s", text, out)
		}
	}
}
