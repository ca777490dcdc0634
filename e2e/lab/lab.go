// Package lab runs real Cluster API management clusters on one machine.
//
// A management cluster (Mgmt) is etcd, kube-apiserver, kube-controller-manager
// (garbage collector and namespaces), and the managers of Cluster API, each a
// process of its own with fixed ports, so that it can be killed and restarted.
// All management clusters of a lab share one cloud (package cloud), which
// outlives each of them. A bare one is an API server with CRDs alone.
//
// Every process dies with the program that holds the Lab. Nothing is signalled
// but what the lab itself started.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/e2e/cloud/control"
)

const (
	// A lab takes a block of ports: its lock, the cloud, then a few for each
	// management cluster, then one for each workload API server. All blocks lie
	// below 32768, where Linux begins to hand out ports to clients.
	blockSize    = 1000
	firstBlock   = 20000
	lastBlock    = 31000
	portControl  = 1
	portDebug    = 2
	portMgmt     = 10
	portsPerMgmt = 23
	maxMgmt      = 20
	portWorkload = 500
	// The last hundred are those of the infrastructure provider of an old management cluster.
	portOldWorkload = 900

	roleCloud = "cloud"
)

// Options of a lab; the zero value but for Dir is one complete management cluster.
type Options struct {
	// Dir gets the data, logs and kubeconfigs. It must be empty or absent.
	Dir string
	// Mgmt is the number of management clusters, mgmt-1, mgmt-2, ...; 0 means 1, -1 none.
	Mgmt int
	// FirstPort is the first of 1000 ports; 0 takes the first free block from 20000 on.
	FirstPort int
	// Bare starts API servers with CRDs alone: no controllers, webhooks or cloud.
	Bare bool
	// SyncPeriod is how often controllers reconcile all objects; 0 means 20 s, so that tests see soon
	// what a resync would do. That of Cluster API's managers is 10 minutes.
	SyncPeriod time.Duration
	// RuntimeSDK has the core managers call runtime extensions.
	RuntimeSDK bool
	// Contracts starts two management clusters without work of controllers: mgmt-1 has the CRDs of
	// Cluster API 1.10 alone, and mgmt-2 has those of the current version with their webhooks.
	Contracts bool
	// Fsync makes etcd durable. Off by default: a lab does not survive its
	// machine, and a kill -9 loses nothing that was handed to the kernel.
	Fsync bool
	// Memory is the GOMEMLIMIT of each API server; empty means 2GiB, enough for 20,000 objects.
	Memory string
	// Home overrides FindHome.
	Home Home
	// Progress is called with one line for each thing that happens.
	Progress func(string)
}

// Lab is a set of management clusters on one cloud.
type Lab struct {
	opts    Options
	home    Home
	spawner *spawner
	lock    net.Listener // holds the block of ports
	cloud   *process
	control control.Client

	mu   sync.Mutex
	mgmt map[string]*Mgmt
}

// Start starts a lab. ctx limits only the start: the lab runs until Close.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	if opts.Mgmt == 0 {
		opts.Mgmt = 1
	}
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	home := opts.Home
	if home == "" {
		var err error
		if home, err = FindHome(); err != nil {
			return nil, err
		}
	}
	for _, t := range targets() {
		if _, err := os.Stat(home.bin(t.name)); err != nil {
			return nil, fmt.Errorf("find %s: run `lab build` first: %w", t.name, err)
		}
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("find folder: %w", err)
	}
	opts.Dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return nil, fmt.Errorf("use folder %s: it is not empty (%w)", dir, errors.Join(err, os.ErrExist))
	}
	lock, err := claimPorts(&opts)
	if err != nil {
		return nil, err
	}
	l := &Lab{
		opts: opts, home: home, spawner: newSpawner(), lock: lock, mgmt: map[string]*Mgmt{},
		control: control.Client{Address: fmt.Sprintf("127.0.0.1:%d", opts.FirstPort+portControl)},
	}
	if err := l.startAll(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Lab) startAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if !l.opts.Bare {
		if err := l.startCloud(ctx); err != nil {
			return err
		}
	}
	setups := slices.Repeat([]setup{{release: current(), bare: l.opts.Bare}}, max(0, l.opts.Mgmt))
	if l.opts.Contracts {
		setups = []setup{{release: old(), bare: true}, {release: current(), idle: true}}
	}
	for i, s := range setups {
		// Named one after the other, so that mgmt-1 has the first ports.
		m, err := l.register(fmt.Sprintf("mgmt-%d", i+1), s)
		if err != nil {
			return err
		}
		group.Go(func() error { return l.create(ctx, m) })
	}
	return group.Wait()
}

// claimPorts binds the first port of a block for as long as the lab runs, so
// that two labs never share one.
func claimPorts(opts *Options) (net.Listener, error) {
	if opts.FirstPort != 0 {
		lock, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", opts.FirstPort))
		if err != nil {
			return nil, fmt.Errorf("claim ports from %d on: another lab has them: %w", opts.FirstPort, err)
		}
		return lock, nil
	}
	for port := firstBlock; port <= lastBlock; port += blockSize {
		if lock, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			opts.FirstPort = port
			return lock, nil
		}
	}
	return nil, fmt.Errorf("claim ports: no free block of %d between %d and %d", blockSize, firstBlock,
		lastBlock+blockSize)
}

func (l *Lab) startCloud(ctx context.Context) error {
	first := l.opts.FirstPort
	l.cloud = &process{
		role: roleCloud,
		args: []string{
			l.home.bin("cloud"),
			fmt.Sprintf("--control-port=%d", first+portControl),
			fmt.Sprintf("--debug-port=%d", first+portDebug),
			fmt.Sprintf("--first-workload-port=%d", first+portWorkload),
			fmt.Sprintf("--last-workload-port=%d", first+portOldWorkload-1),
			"--sync-period=" + l.syncPeriod(),
		},
		log:  filepath.Join(l.opts.Dir, "cloud.log"),
		name: managerName,
	}
	if err := l.spawner.start(l.cloud); err != nil {
		return err
	}
	return l.cloud.wait(ctx, "the cloud", l.control.Ready)
}

// Mgmt returns a management cluster by name, nil when there is none of that name.
func (l *Lab) Mgmt(name string) *Mgmt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mgmt[name]
}

// AddMgmt starts a further management cluster on the same cloud, or one that Prepare has made.
func (l *Lab) AddMgmt(ctx context.Context, name string) (*Mgmt, error) {
	l.mu.Lock()
	var err error
	if l.cloud == nil {
		err = l.startCloud(ctx)
	}
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return l.add(ctx, name, setup{release: current()})
}

// AddOld starts a further management cluster of Cluster API 1.10, the last version that stores
// v1beta1. It needs the programs that Build makes with oldRelease. Its machines die with it, since
// they are not in the lab's cloud; a provider of the cloud that gets the objects of a workload
// cluster makes them again under the same names. HandOver gives them to the cloud instead. A lab
// has room for one.
func (l *Lab) AddOld(ctx context.Context, name string) (*Mgmt, error) {
	for _, t := range old().targets() {
		if _, err := os.Stat(l.home.bin(t.name)); err != nil {
			return nil, fmt.Errorf("find %s: run `lab build --old` first: %w", t.name, err)
		}
	}
	return l.add(ctx, name, setup{release: old()})
}

// AddBare starts a further API server with CRDs alone.
func (l *Lab) AddBare(ctx context.Context, name string) (*Mgmt, error) {
	return l.add(ctx, name, setup{release: current(), bare: true})
}

func (l *Lab) add(ctx context.Context, name string, s setup) (*Mgmt, error) {
	m := l.Mgmt(name)
	if m == nil || !m.prepared {
		var err error
		if m, err = l.register(name, s); err != nil {
			return nil, err
		}
	}
	m.prepared = false
	return m, l.create(ctx, m)
}

// Prepare writes the kubeconfig of a further management cluster, so that a configuration can name
// it. AddMgmt with the same name starts it.
func (l *Lab) Prepare(name string) (*Mgmt, error) {
	m, err := l.register(name, setup{release: current()})
	if err != nil {
		return nil, err
	}
	m.prepared = true
	return m, m.prepare()
}

// register gives a new management cluster its place and ports.
func (l *Lab) register(name string, s setup) (*Mgmt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mgmt[name] != nil || len(l.mgmt) == maxMgmt {
		return nil, fmt.Errorf("add management cluster %s: the name is taken, or there are %d already",
			name, maxMgmt)
	}
	m := newMgmt(l, name, l.opts.FirstPort+portMgmt+len(l.mgmt)*portsPerMgmt, s)
	l.mgmt[name] = m
	return m, nil
}

func (l *Lab) create(ctx context.Context, m *Mgmt) error {
	begin := time.Now()
	if err := m.create(ctx); err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	l.opts.Progress(fmt.Sprintf("%s is ready after %s: %s", m.name,
		time.Since(begin).Round(100*time.Millisecond), m.Kubeconfig()))
	return nil
}

// Close ends everything at once. Data and logs stay in Dir.
func (l *Lab) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var group errgroup.Group
	for _, m := range l.mgmt {
		for _, p := range m.all() {
			// Nobody reads the data again, and a graceful shutdown of an API server would wait for
			// its watches.
			group.Go(func() error { p.kill(); return nil })
		}
	}
	_ = group.Wait()
	if l.cloud != nil {
		l.cloud.kill()
	}
	l.spawner.close()
	l.lock.Close()
}

// State is what state.json says of a running lab.
type State struct {
	Pid       int           `json:"pid"` // of the program that holds the lab
	FirstPort int           `json:"firstPort"`
	Cloud     *ProcessState `json:"cloud,omitempty"`
	// address of the cloud's control endpoint
	Control string               `json:"control,omitempty"`
	Mgmt    map[string]MgmtState `json:"mgmt"`
}

// MgmtState is one management cluster in state.json.
type MgmtState struct {
	Kubeconfig string                  `json:"kubeconfig"`
	Server     string                  `json:"server"`
	Bare       bool                    `json:"bare,omitempty"`
	Processes  map[string]ProcessState `json:"processes"` // by role
}

// ProcessState is one process in state.json; its pid is 0 when it does not run.
type ProcessState struct {
	Pid  int      `json:"pid"`
	Log  string   `json:"log"`
	Args []string `json:"args"`
}

func (p *process) state() ProcessState {
	return ProcessState{Pid: p.pid(), Log: p.log, Args: p.args}
}

// writeState replaces state.json as a whole.
func (l *Lab) writeState() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := State{Pid: os.Getpid(), FirstPort: l.opts.FirstPort, Mgmt: map[string]MgmtState{}}
	if l.cloud != nil {
		cloud := l.cloud.state()
		state.Cloud, state.Control = &cloud, l.control.Address
	}
	for name, m := range l.mgmt {
		processes := map[string]ProcessState{}
		for _, p := range m.all() {
			processes[p.role] = p.state()
		}
		state.Mgmt[name] = MgmtState{Kubeconfig: m.Kubeconfig(), Server: m.server(), Bare: m.bare,
			Processes: processes}
	}
	data, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return fmt.Errorf("marshal state: %w", err)
	}
	path := filepath.Join(l.opts.Dir, "state.json")
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}
