package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/mgmtd/mgmtd/internal/service"
)

func TestVariablesReplaceFlagsAndFlagsWin(t *testing.T) {
	getenv := map[string]string{"MGMTCTL_STORE": "/env/store", "MGMTCTL_CATALOG": "/env/catalog.db",
		"MGMTCTL_TRUSTED_KEY": "/env/a.pub:/env/b.pub", "MGMTCTL_SIGNING_KEY": "/env/signing.key",
		"MGMTCTL_RECIPIENT": "age1a"}
	for _, tt := range []struct {
		line string
		want standaloneFlags
	}{
		{"snapshot list --standalone", standaloneFlags{enabled: true, store: "/env/store",
			catalog: "/env/catalog.db", trustedKeys: []string{"/env/a.pub", "/env/b.pub"},
			signingKey: "/env/signing.key", recipients: []string{"age1a"}}},
		{"snapshot list --standalone --store /s --trusted-key k --catalog c --signing-key s " +
			"--recipient r", standaloneFlags{enabled: true, store: "/s", catalog: "c",
			trustedKeys: []string{"k"}, signingKey: "s", recipients: []string{"r"}}},
	} {
		f := newFake()
		r := runner{fake: f, getenv: getenv}.run(t, tt.line).want(t, 0)
		if diff := cmp.Diff(tt.want, f.flags, cmp.AllowUnexported(standaloneFlags{})); diff != "" {
			t.Errorf("%s: %s", tt.line, diff)
		}
		if strings.Contains(r.stderr, "warning") {
			t.Errorf("%s: %s", tt.line, r.stderr)
		}
	}
}

// TestVariablesAreNotRepeatedInCommands: a command that mgmtctl prints is typed where the variables
// are set.
func TestVariablesAreNotRepeatedInCommands(t *testing.T) {
	f := newFake()
	f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
	runner{fake: f, getenv: map[string]string{"MGMTCTL_STORE": "/env/store"}}.run(t,
		"restore run --yes --standalone --plain --target-kubeconfig t").want(t, 4).stderrHas(t,
		"mgmtctl operation resume 65f1a2b3c4d5 --standalone --plain --target-kubeconfig t\n")
}

// TestNoVariableReplacesAKubeconfigOrAConsent: what must be typed for each command has no variable,
// and one that looks like it has no effect and is warned of.
func TestNoVariableReplacesAKubeconfigOrAConsent(t *testing.T) {
	must := []string{"source-kubeconfig", "target-kubeconfig", "source-context", "target-context",
		"yes", "force", "source-is-gone", "no-fence", "plain", "standalone", "no-release"}
	getenv := map[string]string{}
	for _, flag := range must {
		getenv[variable(flag)] = "true"
	}
	f := newFake()
	r := runner{fake: f, getenv: getenv}.run(t, "restore run --standalone --store /s").want(t, 2)
	for _, flag := range must {
		want := "warning: the environment variable " + variable(flag) + " has no effect; "
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr does not have %q:\n%s", want, r.stderr)
		}
	}
	r.stderrHas(t, "needs --identity (or --plain), --trusted-key (or --plain), --target-kubeconfig\n")
	r = runner{fake: f, getenv: getenv}.run(t, "version").want(t, 0).stderrHas(t, "MGMTCTL_YES")
	if strings.Contains(r.stdout, "MGMTCTL_") {
		t.Errorf("stdout has the warning: %s", r.stdout)
	}
	if out := (runner{fake: f, getenv: getenv}).complete(t, "operation show"); strings.Contains(out,
		"MGMTCTL_") {
		t.Errorf("a completion has the warning: %s", out)
	}
}

// TestAVariableOfStandaloneDoesNotDisturbADaemon: a shell that has the variables of an outage set
// can still be used with a daemon.
func TestAVariableOfStandaloneDoesNotDisturbADaemon(t *testing.T) {
	dir, listener := listenShort(t)
	f := newFake()
	f.snapshots = testSnapshots()
	serveOn(t, f, listener)
	r := runner{fake: newFake(), getenv: map[string]string{"XDG_RUNTIME_DIR": dir,
		"MGMTCTL_STORE": "/s", "MGMTCTL_CONFIG": "/none", "MGMTCTL_CERT_FILE": "/c"}}
	r.run(t, "snapshot list").want(t, 0)
	r.run(t, "snapshot list --address unix://"+filepath.Join(dir, "mgmtd.sock")).want(t, 0)
	r.run(t, "snapshot list --config mgmtd.yaml").want(t, 2).stderrHas(t,
		"--config needs --standalone: a daemon uses its own config; it has read its own")
}

func TestHelpShowsTheVariableOfEachFlag(t *testing.T) {
	help := strings.Join(strings.Fields(runner{fake: newFake()}.run(t, "--help").want(t, 0).stdout),
		" ")
	root := newRoot(&program{stderr: &console{}})
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		shown := strings.Contains(help, "[$"+variable(f.Name)+"]")
		has := false
		for _, name := range variableFlags {
			has = has || name == f.Name
		}
		if shown != has {
			t.Errorf("--%s: the help shows a variable: %v, want %v", f.Name, shown, has)
		}
	})
}

// configFolder makes keys and a configuration of two management clusters and two storage locations,
// and returns its folder. The kubeconfig of the lost one is gone.
func configFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := makeKeys(filepath.Join(dir, "keys"), nil); err != nil {
		t.Fatal(err)
	}
	recipient, err := os.ReadFile(filepath.Join(dir, "keys", "recipient.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text := `apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters:
    - {name: lost, kubeconfigFile: lost.kubeconfig}
    - {name: new, kubeconfigFile: new.kubeconfig, context: admin}
  catalog: catalog.db
  recipients: [` + strings.TrimSpace(string(recipient)) + `]
  signingKeyFile: keys/signing.key
  identityFile: keys/identity.txt
  kinds: [{group: acme.example.org, kind: Pool, pause: annotation}]
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main}
spec: {provider: mgmtd.dev/directory, default: true, config: {path: store}}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: vault}
spec: {provider: mgmtd.dev/directory, config: {path: vault}}
---
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: often, annotations: {mgmtd.dev/management-cluster: lost}}
spec: {schedule: "@every 10m", template: {storageLocation: main}}
`
	if err := os.WriteFile(filepath.Join(dir, "mgmtd.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// configOf runs a command line and returns the configuration of its service.
func configOf(t *testing.T, line string, getenv map[string]string) service.Config {
	t.Helper()
	var got service.Config
	p := &program{stdin: strings.NewReader(""), stdout: &strings.Builder{},
		stderr: &console{w: &strings.Builder{}},
		getenv: func(name string) string { return getenv[name] }}
	p.serve = func(f standaloneFlags, p *program) (server, error) {
		cfg, err := p.serviceConfig(f)
		got = cfg
		return newFake(), err
	}
	p.run(t.Context(), strings.Fields(line))
	return got
}

// TestConfigOfTheDaemonServesStandalone: an outage needs no flag for what the daemon's file has.
// Files of the configuration that are gone are no obstacle before they are needed.
func TestConfigOfTheDaemonServesStandalone(t *testing.T) {
	dir := configFolder(t)
	line := "restore plan --standalone --catalog c --config " + dir + "/mgmtd.yaml --target new"
	cfg := configOf(t, line, nil)
	if cfg.Daemon || len(cfg.Sources) != 2 || cfg.Targets[1].KubeconfigFile != dir+
		"/new.kubeconfig" || cfg.Targets[1].Context != "admin" || len(cfg.Schedules) != 0 {
		t.Fatalf("config %+v", cfg)
	}
	if len(cfg.Locations) != 2 || cfg.Locations[0].Store.URL != "file://"+dir+"/store" ||
		cfg.Locations[0].Store.SigningKeyFile != dir+"/keys/signing.key" || !cfg.Locations[0].Default ||
		cfg.Rows == nil || cfg.CatalogFile != "c" {
		t.Errorf("config %+v", cfg)
	}
	if got := configOf(t, line, map[string]string{"HOME": "/home/me"}).CatalogFile; got != "c" {
		t.Errorf("catalog %s", got)
	}
}

func TestFlagsAndVariablesOverrideTheConfig(t *testing.T) {
	dir := configFolder(t)
	line := "restore plan --standalone --catalog c --target x "
	env := map[string]string{"MGMTCTL_CONFIG": dir + "/mgmtd.yaml"}
	cfg := configOf(t, line+"--store /s --target-kubeconfig t --signing-key k", env)
	if len(cfg.Locations) != 1 || cfg.Locations[0].Store.URL != "/s" ||
		cfg.Locations[0].Store.SigningKeyFile != "k" || len(cfg.Locations[0].Store.Recipients) != 1 ||
		len(cfg.Targets) != 1 || cfg.Targets[0].KubeconfigFile != "t" || cfg.Targets[0].Name != "x" ||
		len(cfg.Sources) != 2 {
		t.Errorf("flags: %+v", cfg)
	}
	env["MGMTCTL_STORE"] = "/env/store"
	if cfg = configOf(t, line, env); len(cfg.Locations) != 1 ||
		cfg.Locations[0].Store.URL != "/env/store" {
		t.Errorf("variable: %+v", cfg.Locations)
	}
	if cfg = configOf(t, line+"--location vault", env); len(cfg.Locations) != 2 {
		t.Errorf("a typed location against a variable: %+v", cfg.Locations)
	}
	if cfg = configOf(t, line+"--plain", env); !cfg.Locations[0].Store.Plain ||
		len(cfg.Locations[0].Store.Recipients) > 0 {
		t.Errorf("plain: %+v", cfg.Locations)
	}
}

// TestConfigCompletesNames: completion reads the file, and asks nobody.
func TestConfigCompletesNames(t *testing.T) {
	dir := configFolder(t)
	r := runner{fake: newFake(), getenv: map[string]string{"MGMTCTL_CONFIG": dir + "/mgmtd.yaml"}}
	for line, want := range map[string]string{
		"--standalone mgmt check":               "lost\nnew\n",
		"--standalone move plan --source":       "lost\nnew\n",
		"--standalone restore run --target":     "lost\nnew\n",
		"--standalone snapshot create --source": "lost\nnew\n",
		"--standalone snapshot list --location": "main\nvault\n",
		"--standalone snapshot list --config":   "yaml\nyml\n",
	} {
		if got := r.complete(t, line); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
