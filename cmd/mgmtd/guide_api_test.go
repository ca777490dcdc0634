//go:build api

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// shellBlocks finds what the guide asks its reader to type.
var shellBlocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestAPIGuide types docs/guide.md: every block, one after the other, into one shell, against two
// management clusters and a real S3 server.
func TestAPIGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlocks.FindAllStringSubmatch(string(guide), -1)
	if len(blocks) < 8 {
		t.Fatalf("only %d blocks found in the guide", len(blocks))
	}
	// a daemon that is left would hold the output open
	script := "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	for _, b := range blocks {
		script += "set -x\n" + b[1] + "{ set +x; } 2>/dev/null\n"
	}
	dir := t.TempDir()
	if err := os.Symlink(programs(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	servers.Clear(t)
	servers.Fleet(t, 0, "--namespace-prefix", "guide-", "--workloads", "2", "--machines", "1",
		"--fast")
	servers.Acknowledge(t, 0)
	servers.Acknowledge(t, 1)
	for i, name := range []string{"a", "b"} {
		kubeconfig, err := os.ReadFile(servers.Options(i).KubeconfigFile)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".kubeconfig"), kubeconfig, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s3 := s3test.Start(t, s3test.Options{})
	s3.NewBucket(t, "mgmtd")
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir = dir
	shell.Env = []string{
		"PATH=" + dir + "/bin:" + os.Getenv("PATH"), "HOME=" + dir, "S3_ENDPOINT=" + s3.Endpoint,
		"S3_ACCESS_KEY=" + s3.AccessKey, "S3_SECRET_KEY=" + s3.SecretKey,
	}
	out, err := shell.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "mgmtd.log"))
		t.Fatalf("%v\n%s\nmgmtd.log:\n%s", err, out, log)
	}
	for _, want := range []string{"often", "succeeded", "retired"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output does not say %q:\n%s", want, out)
		}
	}
}
