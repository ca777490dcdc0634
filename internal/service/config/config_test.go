package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/access"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// folder makes a folder with keys and kubeconfigs and returns its path.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := service.Keygen(dir, nil); err != nil {
		t.Fatal(err)
	}
	recipient, err := os.ReadFile(filepath.Join(dir, "recipient.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"prod.kubeconfig": `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "https://x"}}]}`,
		"broken":          "token: [",
		"aws":             "[p]\naws_access_key_id=a\naws_secret_access_key=b\n",
		"customer":        strings.Repeat("k", 32),
		"recipient":       strings.TrimSpace(string(recipient)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// load writes text into the folder and loads it. RECIPIENT in it becomes a real one.
func load(t *testing.T, dir, text string) (*Config, error) {
	t.Helper()
	recipient, err := os.ReadFile(filepath.Join(dir, "recipient"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mgmtd.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "RECIPIENT", string(recipient))),
		0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

const goodOwn = `apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters:
    - {name: prod, kubeconfigFile: prod.kubeconfig}
    - {name: edge, kubeconfigFile: prod.kubeconfig, context: a}
  catalog: catalog.db
  recipients: [RECIPIENT]
  signingKeyFile: signing.key
  trustedKeyFiles: [signing.pub]
  listen: {unix: mgmtd.sock, groups: [{name: "20", role: view}, {name: "21", role: restore}]}
  metrics: 127.0.0.1:8085
  retention: {keepLast: 3, keepDaily: 7, keepWithin: 1d12h, grace: 4h}
  rules: []
`

const goodVelero = `---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main, namespace: velero, uid: x, creationTimestamp: "2026-03-01T00:00:00Z", generation: 3, labels: {a: b}}
spec:
  provider: aws
  default: true
  accessMode: ReadWrite
  objectStorage: {bucket: mgmt-snapshots, prefix: prod}
  config: {region: eu-central-1, s3Url: "https://s3.example:9000", s3ForcePathStyle: "true", profile: p, checksumAlgorithm: "", credentialsFile: aws, insecureSkipTLSVerify: "false", objectLockMode: governance, retentionDays: "30"}
status: {phase: Available}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: disk}
spec: {provider: mgmtd.dev/directory, config: {path: snapshots}}
---
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: nightly, annotations: {mgmtd.dev/management-cluster: prod, example.com/note: ignored}}
spec:
  schedule: CRON_TZ=Europe/Berlin 0 3 * * *
  skipImmediately: true
  useOwnerReferencesInBackup: false
  template:
    includedNamespaces: ["*"]
    ttl: 720h0m0s
    hooks: {}
    metadata: {}
    snapshotVolumes: false
    csiSnapshotTimeout: 0s
---
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: often, annotations: {mgmtd.dev/management-cluster: edge, mgmtd.dev/jitter: 10s}}
spec: {schedule: "@every 30s", paused: true, template: {includedNamespaces: [a, b], storageLocation: disk,
  labelSelector: {matchLabels: {tier: gold, example.com/a: b}, matchExpressions: [{key: region, operator: NotIn, values: [us, eu]}, {key: old, operator: DoesNotExist}]}}}
`

// TestDefaultSocketIsInTheFolderThatSystemdMade: the packaged user cannot make one in /run.
func TestDefaultSocketIsInTheFolderThatSystemdMade(t *testing.T) {
	dir := folder(t)
	for given, want := range map[string]string{"": DefaultSocket, "/run/mgmtd": "/run/mgmtd/mgmtd.sock",
		"/run/a:/run/b": "/run/a/mgmtd.sock", "relative": DefaultSocket} {
		t.Setenv("RUNTIME_DIRECTORY", given)
		c, err := load(t, dir, strings.Replace(goodOwn, "listen: {unix: mgmtd.sock, groups", "listen: {groups",
			1)+goodVelero)
		if err != nil {
			t.Fatal(err)
		}
		if c.Listen.Unix != want {
			t.Errorf("RUNTIME_DIRECTORY=%q: %s, want %s", given, c.Listen.Unix, want)
		}
	}
}

// TestSecretFilesThatOthersCanReadAreAWarning: their tools do not insist on a mode either, and in a
// Secret volume of Kubernetes the mode is no sign of a mistake.
func TestSecretFilesThatOthersCanReadAreAWarning(t *testing.T) {
	for _, file := range []string{"prod.kubeconfig", "signing.key", "identity.txt"} {
		t.Run(file, func(t *testing.T) { warnsOfMode(t, file) })
	}
}

func warnsOfMode(t *testing.T, file string) {
	dir := folder(t)
	own := strings.Replace(goodOwn, "  listen", "  identityFile: identity.txt\n  listen", 1)
	for mode, want := range map[os.FileMode]string{0o600: "", 0o640: "",
		0o644: "everybody on this host can read it (mode 0644)"} {
		if err := os.Chmod(filepath.Join(dir, file), mode); err != nil {
			t.Fatal(err)
		}
		c, err := load(t, dir, own+goodVelero)
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		for _, w := range c.Warnings {
			if strings.Contains(w.String(), file) {
				found = w.String()
			}
		}
		if !strings.Contains(found, want) || (found == "") != (want == "") {
			t.Errorf("mode %v: warning %q, want %q", mode, found, want)
		}
	}
}

func TestLoadReadsEverySetting(t *testing.T) {
	dir := folder(t)
	c, err := load(t, dir, strings.Replace(goodOwn, "  listen",
		"  identityFile: identity.txt\n  auditLog: audit.log\n  listen", 1)+goodVelero)
	if err != nil {
		t.Fatal(err)
	}
	want := []schedule.Schedule{
		{Name: "nightly", Cron: "CRON_TZ=Europe/Berlin 0 3 * * *", Source: "prod", Location: "main",
			SkipImmediately: true, TTL: 720 * time.Hour},
		{Name: "often", Cron: "@every 30s", Source: "edge", Location: "disk", Namespaces: []string{"a",
			"b"}, Selector: "!old,example.com/a=b,region notin (eu,us),tier=gold", Paused: true, Jitter: 10 * time.Second},
	}
	if diff := cmp.Diff(want, c.Service.Schedules); diff != "" {
		t.Error(diff)
	}
	main, disk := c.Service.Locations[0], c.Service.Locations[1]
	if diff := cmp.Diff(&s3.Options{Bucket: "mgmt-snapshots", Prefix: "prod",
		Endpoint: "https://s3.example:9000", Region: "eu-central-1", PathStyle: true, ChecksumOff: true,
		CredentialsFile: filepath.Join(dir, "aws"), Profile: "p", ObjectLock: s3.LockGovernance,
		RetentionDays: 30}, main.Store.S3); diff != "" {
		t.Error(diff)
	}
	if !main.Default || main.Name != "main" || disk.Default || disk.Store.URL != "file://"+
		filepath.Join(dir, "snapshots") {
		t.Errorf("locations: %+v", c.Service.Locations)
	}
	for _, l := range c.Service.Locations {
		if len(l.Store.Recipients) != 1 || l.Store.SigningKeyFile != filepath.Join(dir, "signing.key") ||
			len(l.Store.TrustedKeyFiles) != 1 || l.Store.Plain {
			t.Errorf("keys of %s: %+v", l.Name, l.Store)
		}
	}
	if identity, err := c.Service.Verify.Identity(); err != nil ||
		!strings.Contains(string(identity), "AGE-SECRET-KEY-") {
		t.Errorf("identity: %d bytes, %v", len(identity), err)
	}
	if c.Listen.Unix != filepath.Join(dir, "mgmtd.sock") || c.Metrics != "127.0.0.1:8085" ||
		c.AuditLog != filepath.Join(dir, "audit.log") ||
		c.Service.CatalogFile != filepath.Join(dir, "catalog.db") || !c.Service.Daemon {
		t.Errorf("config: %+v", c)
	}
	groups := []access.Group{{Name: "20", GID: 20, Role: access.View},
		{Name: "21", GID: 21, Role: access.Restore}}
	if diff := cmp.Diff(groups, c.Listen.Access.Groups); diff != "" || len(c.Warnings) > 0 {
		t.Errorf("%s%v", diff, c.Warnings)
	}
	retention := service.Retention{Policy: retention.Policy{Last: 3, Daily: 7, Within: 36 * time.Hour},
		Grace: 4 * time.Hour}
	if diff := cmp.Diff(retention, c.Service.Retention); diff != "" {
		t.Error(diff)
	}
	if len(c.Service.Sources) != 2 || c.Service.Targets[1].Name != "edge" {
		t.Errorf("management clusters: %+v", c.Service.Sources)
	}
}

func TestLoadFillsInDefaults(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "")
	c, err := load(t, folder(t), `{apiVersion: mgmtd.dev/v1alpha1, kind: Config, spec: {managementClusters: [{name: prod, kubeconfigFile: prod.kubeconfig}], plain: true}}
---
{apiVersion: velero.io/v1, kind: BackupStorageLocation, metadata: {name: disk}, spec: {provider: mgmtd.dev/directory, config: {path: /snapshots}}}
---
{apiVersion: velero.io/v1, kind: Schedule, metadata: {name: s}, spec: {schedule: "@daily", template: {}}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.Unix != DefaultSocket || c.Service.CatalogFile != DefaultCatalog || c.Metrics != "" ||
		!c.Service.Locations[0].Store.Plain {
		t.Errorf("config: %+v", c)
	}
	if s := c.Service.Schedules[0]; s.Source != "prod" || s.Location != "disk" {
		t.Errorf("schedule: %+v", s)
	}
}

// TestLoadReportsEachProblem loads each testdata/*.yaml and compares the error with its golden
// file.
func TestLoadReportsEachProblem(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			dir := folder(t)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = load(t, dir, strings.NewReplacer("GOOD_OWN\n", goodOwn, "GOOD_VELERO\n",
				goodVelero).Replace(string(text)))
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), dir, "DIR") + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadReportsAMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzRead: every problem says where it is and what it is, and what is taken has all that a daemon
// needs.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(strings.NewReplacer("GOOD_OWN\n", goodOwn, "GOOD_VELERO\n", goodVelero).Replace(
			string(text))))
	}
	f.Add([]byte(goodOwn + goodVelero))
	f.Add([]byte(strings.ReplaceAll(fuzzPlain, "KUBECONFIG", "k")))
	f.Add([]byte("a: &a [*a]\n---\n? [x]\n: y\n"))
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "k"),
		[]byte(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "https://x"}}]}`), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &reader{file: "mgmtd.yaml", dir: dir}
		c := r.read(text)
		for _, p := range r.problems {
			if p.Text == "" || p.Line < 0 || p.Line > bytes.Count(text, []byte("\n"))+1 {
				t.Errorf("problem %+v", p)
			}
		}
		if len(r.problems) > 0 {
			return
		}
		if len(c.Service.Sources) == 0 || len(c.Service.Locations) == 0 || c.Service.CatalogFile == "" ||
			c.Listen.Unix == "" && c.Listen.TCP == "" {
			t.Errorf("took %q", text)
		}
		for _, l := range c.Service.Locations {
			if l.Name == "" || l.Store.URL == "" && l.Store.S3 == nil ||
				l.Store.Plain == (len(l.Store.Recipients) > 0) {
				t.Errorf("took %q with location %+v", text, l)
			}
		}
		for _, s := range c.Service.Schedules {
			if _, err := schedule.ParseCron(s.Cron); err != nil || s.Source == "" || s.Location == "" {
				t.Errorf("took %q with schedule %+v", text, s)
			}
		}
	})
}

// fuzzPlain needs no key, so that the fuzzer gets past them.
const fuzzPlain = `{apiVersion: mgmtd.dev/v1alpha1, kind: Config, spec: {managementClusters: [{name: prod, kubeconfigFile: KUBECONFIG}], plain: true, listen: {unix: s}, catalog: c}}
---
{apiVersion: velero.io/v1, kind: BackupStorageLocation, metadata: {name: disk}, spec: {provider: mgmtd.dev/directory, config: {path: /snapshots}}}
---
{apiVersion: velero.io/v1, kind: Schedule, metadata: {name: s}, spec: {schedule: "@daily", template: {}}}
`

func TestKindsOfTheConfigurationJoinTheBuiltInOnes(t *testing.T) {
	c, err := load(t, folder(t), strings.Replace(goodOwn, "  rules: []\n", `  kinds:
    - group: acme.example.org
      kind: Pool
      pause: annotation
      shared: true
      refs: [{path: "spec.credentials.#.secretName", kind: Secret, softOwner: true}]
`, 1)+goodVelero)
	if err != nil {
		t.Fatal(err)
	}
	row := c.Service.Rows.Row(object.GroupKind{Group: "acme.example.org", Kind: "Pool"})
	want := []capi.Reference{{Path: "spec.credentials.#.secretName", To: capi.Secret, SoftOwner: true}}
	if diff := cmp.Diff(want, row.Refs); diff != "" || !row.Shared ||
		row.Pause != capi.PauseByAnnotation || !c.Service.Rows.Has(capi.Machine) {
		t.Errorf("row %+v", row)
	}
}

// TestARowOfTheConfigurationSaysWhatChanges: which conditions and fields controllers write, and
// what they compare with Machines.
func TestARowOfTheConfigurationSaysWhatChanges(t *testing.T) {
	const head = "  kinds:\n    - {group: acme.example.org, kind: Pool, pause: annotation, "
	c, err := load(t, folder(t), strings.Replace(goodOwn, "  rules: []\n", head+
		`perManagementCluster: true, volatileConditions: [Polled], compared: [spec.template],
       volatile: [{path: spec.size, ownedBy: {group: acme.example.org, kind: Fleet},
         nameSuffix: -auto, annotations: [acme.example.org/autoscaled]}]}
`, 1)+goodVelero)
	if err != nil {
		t.Fatal(err)
	}
	row := c.Service.Rows.Row(object.GroupKind{Group: "acme.example.org", Kind: "Pool"})
	want := []capi.VolatileField{{Path: "spec.size", NameSuffix: "-auto",
		OwnedBy:     object.GroupKind{Group: "acme.example.org", Kind: "Fleet"},
		Annotations: []string{"acme.example.org/autoscaled"}}}
	if diff := cmp.Diff(want, row.Volatile); diff != "" || !row.PerManagementCluster ||
		!slices.Equal(row.Compared, []capi.ComparedField{{Path: "spec.template"}}) ||
		!row.IsVolatile("Polled") || !row.IsVolatile("Paused") || row.IsVolatile("Ready") {
		t.Errorf("row %+v", row)
	}
	live := func(status string) map[string]any {
		return map[string]any{"apiVersion": "acme.example.org/v1", "kind": "Pool", "status": map[string]any{
			"conditions": []any{map[string]any{"type": "Polled", "status": status}}}}
	}
	if d := equality.Differences(c.Service.Rows, live("True"), live("False"),
		equality.All); len(d) > 0 {
		t.Errorf("a volatile condition is a difference: %v", d)
	}
	for text, words := range map[string]string{
		"volatile: [{path: spec}]":                                "volatile path",
		"volatile: [{path: spec.a.#.b}]":                          "volatile path",
		"volatile: [{path: status.a}]":                            "volatile path",
		"volatile: [{path: spec.a, ownedBy: {group: a.example}}]": "an owner without a kind",
		"compared: [spec]":                                        "compared path",
		`volatileConditions: [""]`:                                "has no type",
	} {
		if _, err := load(t, folder(t), strings.Replace(goodOwn, "  rules: []\n", head+text+"}\n", 1)+
			goodVelero); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestLoadStandaloneOpensNoFileThatTheConfigurationNames: in an outage the kubeconfig of the lost
// management cluster may be gone, and the signing key may be on another host.
func TestLoadStandaloneOpensNoFileThatTheConfigurationNames(t *testing.T) {
	dir := folder(t)
	text := strings.Replace(goodOwn, "  listen", "  identityFile: identity.txt\n  listen", 1) +
		goodVelero
	if _, err := load(t, dir, text); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"prod.kubeconfig", "signing.key", "signing.pub", "identity.txt",
		"aws"} {
		if err := os.Remove(filepath.Join(dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := LoadStandalone(filepath.Join(dir, "mgmtd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Service.Daemon || len(c.Service.Schedules) > 0 || len(c.Service.Sources) != 2 ||
		len(c.Service.Locations) != 2 || c.IdentityFile != filepath.Join(dir, "identity.txt") ||
		c.Service.Locations[0].Store.SigningKeyFile != filepath.Join(dir, "signing.key") {
		t.Errorf("config %+v", c)
	}
	if _, err := LoadStandalone(filepath.Join(dir, "signing.pub")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
