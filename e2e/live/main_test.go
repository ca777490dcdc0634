// Package live tests mgmtd and mgmtctl against real management clusters. First
// parts of a fleet are moved while both management clusters live (TestMove); then
// the source is killed with kill -9, and parts of its fleet are restored to the
// target (TestOutage); in the end one window of observation serves all scenarios
// (TestWindow). What became of everything is seen from outside (package observe).
// One lab serves all: run the tests with -timeout 20m.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// world is what all tests share.
type world struct {
	dir             string // of the stores, the keys and the daemons
	mgmtctl, mgmtd  string // paths
	lab             *lab.Lab
	s3              *lab.S3
	source, target  *lab.Mgmt
	bare            *lab.Mgmt // a management cluster without providers
	clients         map[*lab.Mgmt]client.WithWatch
	mixed           string          // id of the snapshot that holds the mixed fleet alone
	unmoved, before observe.Objects // the source at rest, before all moves and right before its end
	secrets         []unstructured.Unstructured
	probe           *observe.Probe
	watcher         *observe.Watcher // of the target, from the end of the source on
	workloads       int
	brokenMove      bool // the source is not what it must be for an outage

	mu      sync.Mutex
	endings []ending
}

// ending is what is to be looked at once more when the window has passed.
type ending struct {
	name string
	look func(t *testing.T)
}

func (w *world) later(name string, look func(t *testing.T)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endings = append(w.endings, ending{name, look})
}

// shared is set by TestMain before the first test, and only read then.
var shared *world

func TestMain(m *testing.M) {
	flag.Parse()
	// The scenarios wait for controllers most of the time: all run side by side, whatever the
	// number of processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mgmtd-live-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make folder:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	// A bound, not a measure: what hangs should say where.
	ctx, cancel := context.WithTimeout(context.Background(), 14*time.Minute)
	defer cancel()
	shared = &world{dir: dir}
	defer shared.close()
	if err := shared.build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "prepare live tests:", err)
		return 1
	}
	return m.Run()
}

func (w *world) close() {
	if w.probe != nil {
		w.probe.Stop()
	}
	if w.watcher != nil {
		_ = w.watcher.Stop() // the test that needs its error has stopped it before
	}
	if w.s3 != nil {
		w.s3.Close()
	}
	if w.lab != nil {
		w.lab.Close()
	}
}

func say(text string) {
	if testing.Verbose() {
		fmt.Println(time.Now().Format("15:04:05"), text)
	}
}

// program is the path in an environment variable, or of a program in bin/.
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

// build makes the world: two management clusters, a bare one and an S3 server, the
// mixed fleet and its snapshot, and the fleets of the other scenarios.
func (w *world) build(ctx context.Context) error {
	var err error
	if w.mgmtctl, err = program("MGMTCTL", "mgmtctl"); err != nil {
		return err
	}
	if w.mgmtd, err = program("MGMTD", "mgmtd"); err != nil {
		return err
	}
	if w.lab, err = lab.Start(ctx, lab.Options{Dir: filepath.Join(w.dir, "lab"), Mgmt: 2,
		Progress: say}); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start lab: run make lab: %w", err)
	} else if err != nil {
		return fmt.Errorf("start lab: %w", err)
	}
	home, err := lab.FindHome()
	if err != nil {
		return err
	}
	if w.s3, err = lab.StartS3(ctx, home, filepath.Join(w.dir, "s3")); err != nil {
		return err
	}
	if err := w.s3.CreateBucket(bucket); err != nil {
		return err
	}
	w.source, w.target = w.lab.Mgmt("mgmt-1"), w.lab.Mgmt("mgmt-2")
	w.clients = map[*lab.Mgmt]client.WithWatch{}
	for _, m := range []*lab.Mgmt{w.source, w.target} {
		if w.clients[m], err = clientOf(m); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		var err error
		w.bare, err = w.lab.AddBare(groupCtx, "bare")
		return err
	})
	group.Go(func() error { return w.populate(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	// Not with ctx, which ends before the tests do.
	if w.probe, err = observe.StartProbe(context.WithoutCancel(ctx),
		w.source.Kubeconfig()); err != nil {
		return fmt.Errorf("start probe: %w", err)
	}
	return nil
}

// bucket is that of all stores in S3.
const bucket = "snapshots"

// populate has the source provision everything, and takes the snapshot of the mixed fleet.
func (w *world) populate(ctx context.Context) error {
	c := w.clients[w.source]
	if out := w.exec(ctx, w.dir, "keygen", "--out", w.keys("")); out.code != 0 {
		return fmt.Errorf("make keys: %s", out.text())
	}
	if _, err := fleet.Create(ctx, c, fleet.Options{Prefix: "mixed-", Progress: say}); err != nil {
		return fmt.Errorf("provision mixed fleet: %w", err)
	}
	if _, err := observe.Settled(ctx, w.source.Kubeconfig()); err != nil {
		return err
	}
	var err error
	if w.mixed, err = w.snapshot(ctx); err != nil {
		return err
	}
	home, err := lab.FindHome()
	if err != nil {
		return err
	}
	templates, err := lab.Templates(ctx, home)
	if err != nil {
		return err
	}
	if _, err := fleet.Create(ctx, c, fleet.Options{Shapes: scenarioShapes(templates),
		Progress: say}); err != nil {
		return fmt.Errorf("provision fleets of the scenarios: %w", err)
	}
	if err := prepare(ctx, c); err != nil {
		return err
	}
	if w.unmoved, err = observe.Settled(ctx, w.source.Kubeconfig()); err != nil {
		return err
	}
	w.workloads = len(w.unmoved.Of("cluster.x-k8s.io", "Cluster"))
	var secrets unstructured.UnstructuredList
	secrets.SetAPIVersion("v1")
	secrets.SetKind("SecretList")
	if err := c.List(ctx, &secrets); err != nil {
		return fmt.Errorf("list Secrets: %w", err)
	}
	w.secrets = secrets.Items
	return nil
}

// lose takes a snapshot of the source at rest and kills it.
func (w *world) lose(ctx context.Context) error {
	var err error
	if w.before, err = observe.Settled(ctx, w.source.Kubeconfig()); err != nil {
		return err
	}
	if _, err = w.snapshot(ctx); err != nil {
		return err
	}
	// Not with ctx, which ends before the last test does.
	if w.watcher, err = observe.Watch(context.WithoutCancel(ctx), w.target.Kubeconfig()); err != nil {
		return fmt.Errorf("watch the target: %w", err)
	}
	if err := w.source.KillAll(); err != nil {
		return fmt.Errorf("kill the source: %w", err)
	}
	say("the source is gone")
	return nil
}

// Namespaces of the scenarios.
const (
	selectionNS, classesNS = "selection", "selection-classes"
	resumeNS               = "resume"
	pausedNS               = "no-release"
	badNS                  = "bad-input"
	killedNS               = "move-killed"
	stockNS                = "stock"
)

// scenarioShapes are small: they are provisioned side by side on one machine. The
// moves leave no trace of all but one, so the outage finds them as they were.
func scenarioShapes(templates string) []fleet.Shape {
	return []fleet.Shape{
		{Name: "by-name", Namespace: selectionNS, ClassNamespace: classesNS, ControlPlanes: 1,
			Pools: []int{1}},
		{Name: "by-label", Namespace: selectionNS, ControlPlanes: 1},
		{Name: "left", Namespace: selectionNS, ControlPlanes: 1},
		{Name: "web", Namespace: resumeNS, ControlPlanes: 1, Pools: []int{1}, Addons: true},
		{Name: "web", Namespace: pausedNS, ControlPlanes: 1, Pools: []int{1}, Addons: true,
			HealthChecks: true},
		{Name: "web", Namespace: badNS, ControlPlanes: 1},
		{Name: "web", Namespace: killedNS, ControlPlanes: 1, Pools: []int{1}, Addons: true},
		{Name: "stock", Namespace: stockNS, ClassNamespace: stockNS, ControlPlanes: 3, Pools: []int{2},
			Templates: templates},
	}
}

// outsider owns an object of the fleet and is nothing that a snapshot holds.
var outsider = observe.Ref{Group: "coordination.k8s.io", Kind: "Lease", Namespace: badNS,
	Name: "outsider"}

// owned is that object.
var owned = observe.Ref{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachineTemplate",
	Namespace: badNS, Name: "web-control-plane"}

// prepare changes the fleets as scenarios want them.
func prepare(ctx context.Context, c client.Client) error {
	cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", selectionNS, "by-label")
	label := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"stage":"chosen"}}}`))
	if err := c.Patch(ctx, cluster, label); err != nil {
		return fmt.Errorf("label Cluster: %w", err)
	}
	lease := object("coordination.k8s.io/v1", outsider.Kind, outsider.Namespace, outsider.Name)
	if err := c.Create(ctx, lease); err != nil {
		return fmt.Errorf("create Lease: %w", err)
	}
	template := object("infrastructure.cluster.x-k8s.io/v1beta2", owned.Kind, owned.Namespace,
		owned.Name)
	if err := c.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
		return fmt.Errorf("get template: %w", err)
	}
	template.SetOwnerReferences(append(template.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: "coordination.k8s.io/v1", Kind: outsider.Kind, Name: outsider.Name,
		UID: lease.GetUID(),
	}))
	if err := c.Update(ctx, template); err != nil {
		return fmt.Errorf("give template an owner: %w", err)
	}
	return nil
}

// snapshot takes one of the source and returns its id.
func (w *world) snapshot(ctx context.Context) (string, error) {
	recipient, err := w.recipient()
	if err != nil {
		return "", err
	}
	out := w.exec(ctx, w.dir, "snapshot", "create", "--standalone", "--store", w.store(),
		"--source-kubeconfig", w.source.Kubeconfig(),
		"--recipient", recipient, "--signing-key", w.keys("signing.key"), "-o", "json")
	if out.code != 0 {
		return "", fmt.Errorf("take snapshot: %s", out.text())
	}
	var operation struct {
		SnapshotID string `json:"snapshotId"`
	}
	if err := out.decode(&operation); err != nil {
		return "", fmt.Errorf("take snapshot: %w", err)
	}
	say("took snapshot " + operation.SnapshotID)
	return operation.SnapshotID, nil
}

func (w *world) store() string { return filepath.Join(w.dir, "store") }

func (w *world) keys(name string) string { return filepath.Join(w.dir, "keys", name) }

func (w *world) recipient() (string, error) {
	recipient, err := os.ReadFile(w.keys("recipient.txt"))
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
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}
