package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Daemon is a running mgmtd with a configuration file: management clusters of a lab by name, one
// bucket, schedules. It can be killed and restarted.
type Daemon struct {
	opts    DaemonOptions
	spawner *spawner
	process *process
}

// DaemonOptions of StartDaemon.
type DaemonOptions struct {
	// Program is the path of mgmtd.
	Program string
	// Dir gets the configuration, the catalog, the socket and the log. A socket's path must be
	// short.
	Dir string
	// Keys is a folder that mgmtctl keygen has made.
	Keys string
	// Mgmts are kubeconfigs of management clusters, by name. The files must be there, their servers
	// need not.
	Mgmts map[string]string
	// S3 and Bucket, with an optional Prefix, are where snapshots go.
	S3             *S3
	Bucket, Prefix string
	Schedules      []Schedule
}

// Schedule is a Schedule document as Velero has it.
type Schedule struct {
	Name string
	// Cron is its expression.
	Cron string
	// Source is the name of a management cluster.
	Source string
}

// StartDaemon runs a mgmtd and waits until it takes requests. It ends with Close, or with this
// process.
func StartDaemon(ctx context.Context, opts DaemonOptions) (*Daemon, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := opts.S3.CreateBucket(opts.Bucket); err != nil {
		return nil, err
	}
	credentials := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n",
		opts.S3.AccessKey, opts.S3.SecretKey)
	if err := os.WriteFile(filepath.Join(opts.Dir, credentialsFile), []byte(credentials),
		0o600); err != nil {
		return nil, fmt.Errorf("write credentials: %w", err)
	}
	config, err := opts.config()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(opts.Dir, "mgmtd.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	d := &Daemon{opts: opts, spawner: newSpawner(), process: &process{
		role: "mgmtd", args: []string{opts.Program, "--config", file}, log: filepath.Join(opts.Dir,
			"mgmtd.log"),
	}}
	if err := d.Restart(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

const credentialsFile = "aws-credentials"

// config is the configuration, one YAML file of documents. Paths that are not absolute start at its
// folder.
func (o DaemonOptions) config() (string, error) {
	recipient, err := os.ReadFile(filepath.Join(o.Keys, "recipient.txt"))
	if err != nil {
		return "", fmt.Errorf("read recipient: %w", err)
	}
	var text strings.Builder
	text.WriteString("apiVersion: mgmtd.dev/v1alpha1\nkind: Config\nspec:\n  managementClusters:\n")
	for _, name := range slices.Sorted(maps.Keys(o.Mgmts)) {
		fmt.Fprintf(&text, "    - {name: %s, kubeconfigFile: %q}\n", name, o.Mgmts[name])
	}
	fmt.Fprintf(&text, `  catalog: catalog.db
  recipients: [%s]
  signingKeyFile: %q
  trustedKeyFiles: [%q]
  listen: {unix: mgmtd.sock}
  verify: {level: none} # the latest operation is the one that somebody asked for
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main}
spec:
  provider: aws
  default: true
  objectStorage: {bucket: %s, prefix: %q}
  config: {region: us-east-1, s3ForcePathStyle: "true", s3Url: %q, credentialsFile: %s}
`, strings.TrimSpace(string(recipient)), filepath.Join(o.Keys, "signing.key"),
		filepath.Join(o.Keys, "signing.pub"), o.Bucket, o.Prefix, o.S3.Endpoint, credentialsFile)
	for _, s := range o.Schedules {
		fmt.Fprintf(&text, `---
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: %s, annotations: {mgmtd.dev/management-cluster: %s}}
spec: {schedule: %q, template: {}}
`, s.Name, s.Source, s.Cron)
	}
	return text.String(), nil
}

// Address is where it takes requests, as mgmtctl --address wants it.
func (d *Daemon) Address() string { return "unix://" + d.socket() }

func (d *Daemon) socket() string { return filepath.Join(d.opts.Dir, "mgmtd.sock") }

// Log is the end of its log, for error messages.
func (d *Daemon) Log() string { return d.process.logTail() }

// PeakMemory is how many bytes it had resident at most since its last start.
func (d *Daemon) PeakMemory() (int64, error) {
	return PeakMemory(d.process.pid())
}

// PeakMemory returns how many bytes of a running process were resident at most. The figure of the
// kernel for a process that has ended (ru_maxrss) is at least that of the process that started it,
// since a program starts in the memory of its parent.
func PeakMemory(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("read memory of a process: not known on this system")
}

// Kill is kill -9.
func (d *Daemon) Kill() { d.process.kill() }

// Restart starts it again after Kill, with the same configuration, and waits until it takes
// requests.
func (d *Daemon) Restart(ctx context.Context) error {
	if err := d.spawner.start(d.process); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: run make build", err)
		}
		return err
	}
	return d.process.wait(ctx, "mgmtd", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.socket())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Close ends it. Its files stay.
func (d *Daemon) Close() {
	d.process.kill()
	d.spawner.close()
}
