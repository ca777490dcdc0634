//go:build api

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// daemonTimeout bounds the start of a daemon, and its end.
const daemonTimeout = time.Minute

// daemonConfig is the config of a script's daemon. "gone" is a management cluster that does not
// answer.
var daemonConfig = template.Must(template.New("config").Parse(`apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters:
  - {name: {{.Source.Name}}, kubeconfigFile: {{.Source.KubeconfigFile}}}
  - {name: {{.Target.Name}}, kubeconfigFile: {{.Target.KubeconfigFile}}}
  - {name: gone, kubeconfigFile: gone.kubeconfig}
  catalog: catalog.db
  recipients: [{{.Recipient}}]
  signingKeyFile: keys/signing.key
  trustedKeyFiles: [keys/signing.pub]
  listen: {unix: mgmtd.sock}
  verify: {{or .Verify "{level: none}"}}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main}
spec: {provider: mgmtd.dev/directory, default: true, config: {path: store}}
{{range .Places}}---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: {{.}}}
spec: {provider: mgmtd.dev/directory, config: {path: {{.}}}}
{{end}}---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: locked}
spec:
  provider: aws
  objectStorage: {bucket: {{.Bucket}}}
  config: {region: us-east-1, s3Url: "{{.S3.Endpoint}}", s3ForcePathStyle: "true", credentialsFile: {{.S3.CredentialsFile}}, objectLockMode: governance, retentionDays: "1"}
`))

const goneKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: gone, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: gone, context: {cluster: gone, user: gone}}]
users: [{name: gone, user: {token: t}}]
current-context: gone
`

// buildDaemon builds mgmtd as it is now: what lies in bin/ may be of yesterday.
func buildDaemon(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mgmtd")
	if out, err := exec.Command("go", "build", "-o", file, "../mgmtd").CombinedOutput(); err != nil {
		t.Fatalf("build mgmtd: %v\n%s", err, out)
	}
	return file
}

// startDaemon starts the daemon of a script and waits until it answers. When the script ends it
// must end in good order, and must not have logged a secret (I6). A file more.yaml of the script
// is a part of its config, with $NS for the script's namespace; a file verify.yaml is its
// spec.verify, without which it verifies nothing by itself.
func (l *lab) startDaemon(env *testscript.Env, a access) error {
	verify, err := os.ReadFile(a.file("verify.yaml"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var config bytes.Buffer
	if err := daemonConfig.Execute(&config, map[string]any{"Source": a.source, "Target": a.target,
		"Recipient": a.recipient, "Places": places, "Verify": strings.TrimSpace(string(verify)),
		"S3": a.s3, "Bucket": a.bucket}); err != nil {
		return err
	}
	more, err := os.ReadFile(a.file("more.yaml"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	config.WriteString(strings.ReplaceAll(string(more), "$NS", a.namespace))
	for name, text := range map[string]string{"mgmtd.yaml": config.String(),
		"gone.kubeconfig": goneKubeconfig} {
		if err := os.WriteFile(a.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	log, err := os.Create(a.file("mgmtd.log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(l.mgmtd, "--config", a.file("mgmtd.yaml"))
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = a.work, log, log, append(os.Environ(), "HOME="+
		a.file("home"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start mgmtd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	env.Defer(func() { l.stopDaemon(cmd, ended, log) })
	for end := time.Now().Add(daemonTimeout); time.Now().Before(end); time.Sleep(
		20 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("mgmtd ended: %w\n%s", err, readFile(log))
		default:
		}
		if probe(l.t.Context(), "unix", a.file("mgmtd.sock"), nil) == nil {
			return nil
		}
	}
	return fmt.Errorf("mgmtd does not answer after %s\n%s", daemonTimeout, readFile(log))
}

func (l *lab) stopDaemon(cmd *exec.Cmd, ended <-chan error, log *os.File) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			l.t.Errorf("mgmtd ended: %v\n%s", err, readFile(log))
		}
	case <-time.After(daemonTimeout):
		l.t.Errorf("mgmtd does not end\n%s", readFile(log))
		_ = cmd.Process.Kill()
		<-ended
	}
	for _, secret := range []string{"AGE-SECRET-KEY", "PRIVATE KEY"} {
		if strings.Contains(readFile(log), secret) {
			l.t.Errorf("mgmtd logged a secret: %s", secret)
		}
	}
	_ = log.Close()
}

// readFile gives what a log says, for the message of a failure.
func readFile(log *os.File) string {
	text, _ := os.ReadFile(log.Name())
	return string(text)
}
