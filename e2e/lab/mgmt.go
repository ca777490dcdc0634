package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/e2e/cloud/control"
)

// syncPeriod is that of Options.SyncPeriod when it names none.
const syncPeriod = 20 * time.Second

func (l *Lab) syncPeriod() string {
	return cmp.Or(l.opts.SyncPeriod, syncPeriod).String()
}

// Roles of processes: the names of their logs, and their keys in state.json.
const (
	roleEtcd              = "etcd"
	roleAPIServer         = "kube-apiserver"
	roleControllerManager = "kube-controller-manager"
	roleCore              = "capi-core"
	roleBootstrap         = "capi-kubeadm-bootstrap"
	roleControlPlane      = "capi-kubeadm-control-plane"
	roleInMemory          = "capi-in-memory" // of old management clusters
)

// managerName is the program's name in the images of all providers. It matters:
// controllers sign their updates with it, so it is in managedFields.
const managerName = "manager"

// Ports of a management cluster, counted from its first.
const (
	portAPIServer = iota
	portEtcd
	portEtcdPeer
	portFirstProvider // then webhook and health port of each provider
	portInMemory      = 11
	portHandOver      = 12
	portFirstExtra    = 13 // then two ports of each extra provider
)

// setup says what runs on a management cluster.
type setup struct {
	release release
	// bare: no controllers, webhooks or infrastructure.
	bare bool
	// idle: webhooks, and controllers that reconcile nothing.
	idle bool
}

// noObject is a watch filter that fits no object: controllers with it reconcile nothing.
const noObject = "none"

// Mgmt is one management cluster of a lab. Its methods are not for use by
// several goroutines at once.
type Mgmt struct {
	lab  *Lab
	name string
	dir  string
	port int
	setup
	pki *pki
	// prepared: Prepare has written the kubeconfig, and nothing was started yet.
	prepared bool

	etcd, apiServer *process
	controllers     []*process // controller manager first, and alone when bare
	extras          []*extraProcess
}

func newMgmt(l *Lab, name string, port int, s setup) *Mgmt {
	m := &Mgmt{lab: l, name: name, dir: filepath.Join(l.opts.Dir, name), port: port, setup: s}
	m.etcd = m.process(roleEtcd, m.etcdArgs())
	m.apiServer = m.process(roleAPIServer, m.apiServerArgs())
	// A third of its work on a small host was collecting garbage of a heap that hardly grows.
	limit := "2GiB"
	if l.opts.Memory != "" {
		limit = l.opts.Memory
	}
	m.apiServer.env = []string{"GOGC=400", "GOMEMLIMIT=" + limit}
	m.controllers = []*process{m.process(roleControllerManager, []string{
		"--kubeconfig=" + m.Kubeconfig(),
		// The garbage collector makes a wrong owner UID as dangerous as in production.
		// The controller of quotas writes the status without which admission refuses everything.
		"--controllers=garbage-collector-controller,namespace-controller,resourcequota-controller",
		"--leader-elect=false",
		"--secure-port=0",
	})}
	if m.bare {
		return m
	}
	for i, p := range m.release.providers {
		if p.role == roleCloud {
			continue
		}
		process := m.process(p.role, m.managerArgs(i, p))
		process.args[0] += m.release.suffix
		process.name = managerName
		process.env = []string{"POD_NAMESPACE=" + p.namespace, "POD_NAME=" + p.role, "POD_UID=" + p.role}
		m.controllers = append(m.controllers, process)
	}
	return m
}

// managerArgs are the arguments of the manager of provider i.
func (m *Mgmt) managerArgs(i int, p provider) []string {
	args := []string{
		"--kubeconfig=" + m.Kubeconfig(),
		"--sync-period=" + m.lab.syncPeriod(),
		fmt.Sprintf("--webhook-port=%d", m.webhookPort(i)),
		"--webhook-cert-dir=" + m.pkiDir(),
		fmt.Sprintf("--health-addr=127.0.0.1:%d", m.healthPort(i)),
	}
	gates := "ClusterTopology=true,MachinePool=true"
	switch p.role {
	case roleInMemory:
		first := m.lab.opts.FirstPort
		return append(args,
			fmt.Sprintf("--debug-port=%d", m.port+portInMemory),
			"--hand-over-addr="+m.handOverAddress(),
			fmt.Sprintf("--first-workload-port=%d", first+portOldWorkload),
			fmt.Sprintf("--last-workload-port=%d", first+blockSize-1))
	case roleBootstrap:
		gates = "MachinePool=true"
	case roleCore:
		if m.lab.opts.RuntimeSDK {
			gates += ",RuntimeSDK=true"
		}
	}
	if m.idle {
		args = append(args, "--watch-filter="+noObject)
	}
	return append(args, "--feature-gates="+gates, "--diagnostics-address=0", "--insecure-diagnostics")
}

func (m *Mgmt) process(role string, args []string) *process {
	return &process{
		role: role,
		args: append([]string{m.lab.home.bin(role)}, args...),
		log:  filepath.Join(m.dir, role+".log"),
	}
}

func (m *Mgmt) etcdArgs() []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", m.port+portEtcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", m.port+portEtcdPeer)
	args := []string{
		"--name=" + m.name,
		"--data-dir=" + filepath.Join(m.dir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + m.name + "=" + peer,
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
	if !m.lab.opts.Fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func (m *Mgmt) apiServerArgs() []string {
	return []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", m.port+portEtcd),
		fmt.Sprintf("--secure-port=%d", m.port+portAPIServer),
		"--bind-address=127.0.0.1",
		// Without it kube-apiserver needs a default route, which an isolated network does not have.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--cert-dir=" + m.pkiDir(),
		"--tls-cert-file=" + filepath.Join(m.pkiDir(), "tls.crt"),
		"--tls-private-key-file=" + filepath.Join(m.pkiDir(), "tls.key"),
		"--client-ca-file=" + filepath.Join(m.pkiDir(), "ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(m.pkiDir(), "sa.key"),
		"--service-account-signing-key-file=" + filepath.Join(m.pkiDir(), "sa.key"),
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount",
		"--profiling=false",
	}
}

// Name of the management cluster.
func (m *Mgmt) Name() string { return m.name }

// Kubeconfig is the path of a kubeconfig with full rights. Kills and restarts do not change the
// file.
func (m *Mgmt) Kubeconfig() string { return filepath.Join(m.dir, "kubeconfig") }

func (m *Mgmt) pkiDir() string { return filepath.Join(m.dir, "pki") }
func (m *Mgmt) server() string {
	return fmt.Sprintf("https://127.0.0.1:%d",
		m.port+portAPIServer)
}
func (m *Mgmt) webhookPort(i int) int { return m.port + portFirstProvider + 2*i }
func (m *Mgmt) healthPort(i int) int  { return m.port + portFirstProvider + 2*i + 1 }

func (m *Mgmt) handOverAddress() string { return fmt.Sprintf("127.0.0.1:%d", m.port+portHandOver) }

// Authority returns the CA of its API server and its clients: the certificate and the key as PEM.
func (m *Mgmt) Authority() (cert, key []byte, err error) {
	if cert, err = os.ReadFile(filepath.Join(m.pkiDir(), "ca.crt")); err == nil {
		key, err = os.ReadFile(filepath.Join(m.pkiDir(), "ca.key"))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read CA of %s: %w", m.name, err)
	}
	return cert, key, nil
}

// HandOver gives a paused workload cluster of an old management cluster to the lab's cloud: its
// machines and Nodes, and the port of its API server. No controller of m may work on it afterwards.
func (m *Mgmt) HandOver(ctx context.Context, namespace, name string) error {
	return m.lab.control.HandOver(ctx, m.handOverAddress(), namespace, name)
}

func (m *Mgmt) all() []*process {
	all := append([]*process{m.etcd, m.apiServer}, m.controllers...)
	for _, e := range m.extras {
		all = append(all, e.process)
	}
	return all
}

// RESTConfig is the Kubeconfig as a client configuration without a rate limit.
func (m *Mgmt) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", m.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", m.name, err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// prepare makes its folder, keys and kubeconfig.
func (m *Mgmt) prepare() error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	var err error
	if m.pki, err = newPKI(m.pkiDir()); err != nil {
		return err
	}
	return m.pki.writeKubeconfig(m.Kubeconfig(), m.name, m.server())
}

// create makes the management cluster from nothing, or from what prepare has made.
func (m *Mgmt) create(ctx context.Context) error {
	if m.pki == nil {
		if err := m.prepare(); err != nil {
			return err
		}
	}
	if err := m.startServers(ctx); err != nil {
		return err
	}
	if err := m.install(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, m.apiServer.logTail())
	}
	return m.startControllers(ctx)
}

// Restart brings everything back that does not run, with the data etcd has.
func (m *Mgmt) Restart(ctx context.Context) error {
	if err := m.startServers(ctx); err != nil {
		return fmt.Errorf("restart %s: %w", m.name, err)
	}
	if err := m.startControllers(ctx); err != nil {
		return fmt.Errorf("restart %s: %w", m.name, err)
	}
	return nil
}

// KillAPIServer is kill -9 of the API server alone.
func (m *Mgmt) KillAPIServer() error {
	m.apiServer.kill()
	return m.lab.writeState()
}

// RestartAPIServer starts the API server again and waits until it is ready.
// The controllers find it by themselves.
func (m *Mgmt) RestartAPIServer(ctx context.Context) error {
	if err := m.startServers(ctx); err != nil {
		return fmt.Errorf("restart API server of %s: %w", m.name, err)
	}
	return m.lab.writeState()
}

// KillAll is kill -9 of the API server, etcd and all managers: the management
// cluster is gone, its workload clusters live on in the cloud.
func (m *Mgmt) KillAll() error {
	var group sync.WaitGroup
	for _, p := range m.all() {
		group.Go(p.kill)
	}
	group.Wait()
	var err error
	if !m.bare && m.release.suffix == "" {
		// The infrastructure provider's manager dies with the others; in the lab it is a part of
		// the cloud.
		err = m.lab.control.Detach(context.Background(), m.name)
	}
	return errors.Join(err, m.lab.writeState())
}

func (m *Mgmt) startServers(ctx context.Context) error {
	if err := m.lab.spawner.start(m.etcd); err != nil {
		return err
	}
	if err := m.etcd.wait(ctx, "etcd", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", m.port+portEtcd))
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		return err
	}
	if err := m.lab.spawner.start(m.apiServer); err != nil {
		return err
	}
	config, err := m.RESTConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return m.apiServer.wait(ctx, "the API server", func(ctx context.Context) error {
		return get(ctx, client, m.server()+"/readyz")
	})
}

// startControllers starts what does not run, and waits until every provider is
// ready and its webhooks answer.
func (m *Mgmt) startControllers(ctx context.Context) error {
	for _, p := range m.controllers {
		if err := m.lab.spawner.start(p); err != nil {
			return err
		}
	}
	if m.bare {
		return m.startExtras(ctx)
	}
	// The group's context ends with its Wait: what follows needs the caller's.
	group, groupCtx := errgroup.WithContext(ctx)
	for i, p := range m.release.providers {
		if p.role == roleCloud {
			mgmt := control.Mgmt{Kubeconfig: m.Kubeconfig(), WebhookPort: m.webhookPort(i),
				CertDir: m.pkiDir()}
			if m.idle {
				mgmt.WatchFilter = noObject
			}
			group.Go(func() error {
				err := m.lab.control.Attach(groupCtx, m.name, mgmt)
				if err != nil {
					return fmt.Errorf("%w\n%s", err, m.lab.cloud.logTail())
				}
				return nil
			})
			continue
		}
		process := m.controllers[1+i]
		group.Go(func() error {
			return process.wait(groupCtx, process.role, func(ctx context.Context) error {
				return get(ctx, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/readyz", m.healthPort(i)))
			})
		})
	}
	group.Go(func() error { return m.waitGarbageCollector(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := m.waitWebhooks(ctx); err != nil {
		return err
	}
	return m.startExtras(ctx)
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return nil
}
