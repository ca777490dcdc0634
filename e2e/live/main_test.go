// Package live tests mgmtd and mgmtctl against real management clusters. Most tests share one lab:
//
//  1. TestMovesBetweenLiveManagementClusters moves parts of a fleet and moves some back. Meanwhile
//     two workload clusters are lived in.
//  2. TestRestoresAfterAnOutage kills the source with kill -9 and restores parts of its fleet.
//  3. TestNothingChangesInTheWindow waits, then checks the results of all scenarios again.
//
// The tests of test-long (TestLong…) run alone, when MGMTD_TEST_LONG is set. Each has a lab of
// its own.
//
// Package observe checks the results from outside. Run the tests with -timeout 20m.
package live

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// fixture is the state that all tests share.
type fixture struct {
	dir            string // for the stores, the keys and the daemons
	mgmtctl, mgmtd string // paths of the programs
	lab            *lab.Lab
	s3             *lab.S3
	location       string // of the store; empty when it is a folder
	source, target *lab.Mgmt
	bare           *lab.Mgmt // a management cluster with the kinds of the providers alone
	clients        map[*lab.Mgmt]client.WithWatch
	// mixed is the id of a snapshot that contains only the mixed fleet.
	mixed string
	// beforeMoves and before are the stable inventory of the source before all moves, and right
	// before it is killed.
	beforeMoves, before observe.Objects
	secrets             []unstructured.Unstructured
	probes              []*observe.Probe
	// lived returns the error of living in the lived-in fleet, once that has ended.
	lived     func() error
	watcher   *observe.Watcher // of the target, from the kill of the source on
	workloads int
	// moveFailed: the source is not in the state that the outage expects.
	moveFailed bool
	// scaledUp are the events on the target that the restores do not explain: testStock lets the
	// target scale up a control plane.
	scaledUp []string

	mu       sync.Mutex
	rechecks []recheck
}

// recheck is an assertion of a scenario that TestNothingChangesInTheWindow repeats.
type recheck struct {
	name  string
	check func(t *testing.T)
}

// checkAgainLater has TestNothingChangesInTheWindow run check.
func (f *fixture) checkAgainLater(name string, check func(t *testing.T)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rechecks = append(f.rechecks, recheck{name, check})
}

// shared is set by TestMain before the first test. It is nil when only the tests of test-long run.
var shared *fixture

// runsLong reports whether the tests of test-long run, and no others.
func runsLong() bool { return os.Getenv("MGMTD_TEST_LONG") != "" }

// skipInLong skips a test that uses the shared fixture when the tests of test-long run.
func skipInLong(t *testing.T) {
	t.Helper()
	if runsLong() {
		t.Skip("the tests of test-long run alone")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The scenarios wait for controllers most of the time, so all of them run at once on any number
	// of processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if runsLong() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mgmtd-live-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make folder:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	// The limit only ends a build that hangs, with an error that says where.
	ctx, cancel := context.WithTimeout(context.Background(), 14*time.Minute)
	defer cancel()
	shared = &fixture{dir: dir}
	defer shared.close()
	if err := shared.build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "prepare live tests:", err)
		return 1
	}
	return m.Run()
}

func (f *fixture) close() {
	for _, probe := range f.probes {
		probe.Stop()
	}
	if f.watcher != nil {
		_ = f.watcher.Stop() // TestNothingChangesInTheWindow has checked its error
	}
	if f.s3 != nil {
		f.s3.Close()
	}
	if f.lab != nil {
		f.lab.Close()
	}
}

// printProgress prints text with the time when the tests run with -v.
func printProgress(text string) {
	if testing.Verbose() {
		fmt.Println(time.Now().Format("15:04:05"), text)
	}
}

// program returns the path in an environment variable, or that of a program in bin/.
func program(variable, name string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join("..", "..", "bin", name)
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("find %s: run make build: %w", name, err)
	}
	return path, nil
}

// build starts two management clusters, a bare one and an S3 server, and populates the source.
func (f *fixture) build(ctx context.Context) error {
	if err := f.start(ctx, lab.Options{}); err != nil {
		return err
	}
	if err := f.startS3(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		var err error
		f.bare, err = f.lab.AddBare(groupCtx, "bare")
		return err
	})
	group.Go(func() error { return f.populate(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	return f.startProbe(ctx, f.probed()...)
}

// startS3 starts an S3 server with a bucket.
func (f *fixture) startS3(ctx context.Context) error {
	home, err := lab.FindHome()
	if err != nil {
		return err
	}
	if f.s3, err = lab.StartS3(ctx, home, filepath.Join(f.dir, "s3")); err != nil {
		return err
	}
	return f.s3.CreateBucket(bucket)
}

// startProbe starts a probe of the workload clusters of namespaces of the source. It outlives ctx.
func (f *fixture) startProbe(ctx context.Context, namespaces ...string) error {
	probe, err := observe.StartProbe(context.WithoutCancel(ctx), f.source.Kubeconfig(),
		namespaces...)
	if err != nil {
		return fmt.Errorf("start probe: %w", err)
	}
	f.probes = append(f.probes, probe)
	return nil
}

// start finds the programs, starts two management clusters, and makes keys.
func (f *fixture) start(ctx context.Context, opts lab.Options) error {
	var err error
	if f.mgmtctl, err = program("MGMTCTL", "mgmtctl"); err != nil {
		return err
	}
	if f.mgmtd, err = program("MGMTD", "mgmtd"); err != nil {
		return err
	}
	opts.Dir, opts.Mgmt, opts.Progress = filepath.Join(f.dir, "lab"), 2, printProgress
	if f.lab, err = lab.Start(ctx, opts); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start lab: run make lab: %w", err)
	} else if err != nil {
		return fmt.Errorf("start lab: %w", err)
	}
	f.source, f.target = f.lab.Mgmt("mgmt-1"), f.lab.Mgmt("mgmt-2")
	f.clients = map[*lab.Mgmt]client.WithWatch{}
	for _, m := range []*lab.Mgmt{f.source, f.target} {
		if f.clients[m], err = clientOf(m); err != nil {
			return err
		}
	}
	if out := f.exec(ctx, f.dir, "keygen", "--out", f.keys("")); out.code != 0 {
		return fmt.Errorf("make keys: %s", out.text())
	}
	return nil
}

// probed returns the namespaces of the workload clusters that the probe asks from the beginning:
// all but the one that gets more Nodes on the target, and the lived-in ones.
func (f *fixture) probed() []string {
	var namespaces []string
	for _, cluster := range f.beforeMoves.Of("cluster.x-k8s.io", "Cluster") {
		if cluster.GetNamespace() != stockNS {
			namespaces = append(namespaces, cluster.GetNamespace())
		}
	}
	f.workloads = len(namespaces)
	return namespaces
}

// bucket is the S3 bucket of all stores.
const bucket = "snapshots"

// readSecrets reads the Secrets of the source with their values.
func (f *fixture) readSecrets(ctx context.Context) error {
	var secrets unstructured.UnstructuredList
	secrets.SetAPIVersion("v1")
	secrets.SetKind("SecretList")
	if err := f.clients[f.source].List(ctx, &secrets); err != nil {
		return fmt.Errorf("list Secrets: %w", err)
	}
	f.secrets = secrets.Items
	return nil
}

// killSource waits until the lived-in fleet has lived, and then does what captureAndKill does.
func (f *fixture) killSource(ctx context.Context) error {
	if err := f.lived(); err != nil {
		return fmt.Errorf("live in namespace %s: %w", livedNS, err)
	}
	if err := f.startProbe(ctx, livedNS); err != nil {
		return err
	}
	if err := f.captureAndKill(ctx); err != nil {
		return err
	}
	f.workloads += len(f.before.In(livedNS).Of("cluster.x-k8s.io", "Cluster"))
	return nil
}

// captureAndKill waits until nothing on the source changes, takes a snapshot of it and kills it.
func (f *fixture) captureAndKill(ctx context.Context) error {
	var err error
	if f.before, err = observe.StableInventory(ctx, f.source.Kubeconfig()); err != nil {
		return err
	}
	if _, err = f.snapshot(ctx); err != nil {
		return err
	}
	// The watcher outlives ctx.
	if f.watcher, err = observe.Watch(context.WithoutCancel(ctx), f.target.Kubeconfig()); err != nil {
		return fmt.Errorf("watch the target: %w", err)
	}
	if err := f.source.KillAll(); err != nil {
		return fmt.Errorf("kill the source: %w", err)
	}
	printProgress("the source is gone")
	return nil
}

// snapshot takes a snapshot of the source, or of namespaces of it, and returns its id.
func (f *fixture) snapshot(ctx context.Context, namespaces ...string) (string, error) {
	recipient, err := f.recipient()
	if err != nil {
		return "", err
	}
	args := []string{"snapshot", "create", "--standalone", "--store", f.store(),
		"--source-kubeconfig", f.source.Kubeconfig(),
		"--recipient", recipient, "--signing-key", f.keys("signing.key"), "-o", "json"}
	for _, namespace := range namespaces {
		args = append(args, "--namespace", namespace)
	}
	out := f.exec(ctx, f.dir, args...)
	if out.code != 0 {
		return "", fmt.Errorf("take snapshot: %s", out.text())
	}
	var operation struct {
		SnapshotID string `json:"snapshotId"`
	}
	if err := out.decode(&operation); err != nil {
		return "", fmt.Errorf("take snapshot: %w", err)
	}
	printProgress("took snapshot " + operation.SnapshotID)
	return operation.SnapshotID, nil
}

func (f *fixture) store() string {
	if f.location != "" {
		return f.location
	}
	return filepath.Join(f.dir, "store")
}

func (f *fixture) keys(name string) string { return filepath.Join(f.dir, "keys", name) }

func (f *fixture) recipient() (string, error) {
	recipient, err := os.ReadFile(f.keys("recipient.txt"))
	if err != nil {
		return "", fmt.Errorf("read recipient: %w", err)
	}
	return strings.TrimSpace(string(recipient)), nil
}

func clientOf(m *lab.Mgmt) (client.WithWatch, error) {
	config, err := m.RESTConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	return observe.Named(apiVersion, kind, namespace, name)
}
