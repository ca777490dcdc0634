package live

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/e2e/lab"
)

// testCutNetwork restores what the source has, while mgmtd cannot reach the source and the source
// goes on: connections are refused, or they are accepted and nothing is answered. The network is
// back as soon as the workload cluster is released.
func (c *comeback) testCutNetwork(t *testing.T) {
	n := startNetwork(t, c.source)
	c.daemon.Kill()
	var err error
	if c.daemon, err = c.startDaemonOver(t.Context(), "main", n.kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.daemon.Close)
	c.route = n.kubeconfig
	defer func() { c.route = c.source.Kubeconfig() }()
	for _, cut := range []struct {
		name, namespace string
		cut             func()
	}{{"Refused", backRefusedNS, n.refuse}, {"Silent", backSilentNS, n.silence}} {
		t.Run(cut.name, func(t *testing.T) {
			o := c.operate(t)
			cut.cut()
			c.restoreUntilAnswered(t, o, cut.namespace, func() {
				c.assertAtWork(t, cut.namespace, true, true)
				n.heal(t)
			})
		})
	}
}

// network is the way to a server: a TCP forwarder on the loopback interface that a test can cut.
// TLS is between the client and the server.
type network struct {
	kubeconfig      string // leads through the network; only for the network to an API server
	address, server string

	mu       sync.Mutex
	listener net.Listener      // nil while connections are refused
	conns    map[net.Conn]bool // of both sides
	passes   chan struct{}     // closed while bytes pass
	running  sync.WaitGroup
}

// startNetwork starts the network to a management cluster. It ends with the test.
func startNetwork(t *testing.T, m *lab.Mgmt) *network {
	t.Helper()
	config, err := clientcmd.LoadFromFile(m.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	n := startNetworkTo(t, strings.TrimPrefix(cluster.Server, "https://"))
	cluster.Server = "https://" + n.address
	n.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, n.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return n
}

// startNetworkTo starts the network to the address of a server. It ends with the test.
func startNetworkTo(t *testing.T, server string) *network {
	t.Helper()
	n := &network{server: server, conns: map[net.Conn]bool{}, passes: make(chan struct{})}
	close(n.passes)
	var err error
	// Below those of labs, and not a port that a client gets while connections are refused.
	for port := 19000; n.listener == nil && port < 20000; port++ {
		n.address = fmt.Sprintf("127.0.0.1:%d", port)
		err = n.listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.heal(t) // lets what waits for the network end
		n.refuse()
		n.running.Wait()
	})
	return n
}

// refuse closes all connections and refuses new ones, as a host does on which nothing listens.
func (n *network) refuse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != nil {
		_ = n.listener.Close()
		n.listener = nil
	}
	for conn := range n.conns {
		_ = conn.Close()
	}
}

// silence accepts connections and passes nothing on, as a network does that drops packets.
func (n *network) silence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.passes = make(chan struct{})
}

// heal ends a cut. Connections that were silent go on, since TCP sends again what was lost.
func (n *network) heal(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.passes:
	default:
		close(n.passes)
	}
	if n.listener == nil {
		if err := n.listen(); err != nil {
			t.Error(err)
		}
	}
}

// listen accepts connections at the address of the network.
func (n *network) listen() error {
	listener, err := net.Listen("tcp", n.address)
	if err == nil {
		n.listener = listener
		n.running.Go(func() { n.accept(listener) })
	}
	return err
}

// accept forwards connections until the listener is closed.
func (n *network) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		n.running.Go(func() { n.forward(conn) })
	}
}

// forward passes bytes between a client and the API server until one of them ends its connection.
func (n *network) forward(client net.Conn) {
	defer n.track(client)()
	<-n.open()
	server, err := net.Dial("tcp", n.server)
	if err != nil {
		return
	}
	defer n.track(server)()
	var back sync.WaitGroup
	back.Go(func() { n.pass(client, server) })
	n.pass(server, client)
	back.Wait()
}

// track lets a cut close a connection. The function that it returns closes it as well.
func (n *network) track(conn net.Conn) (done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[conn] = true
	if n.listener == nil { // accepted right before the cut
		_ = conn.Close()
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, conn)
		_ = conn.Close()
	}
}

// open returns a channel that is closed when bytes pass.
func (n *network) open() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.passes
}

// pass copies bytes from one end to the other, and then ends both connections.
func (n *network) pass(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	_, _ = io.Copy(to, gate{n, from})
}

// gate reads what arrives and hands it on when bytes pass.
type gate struct {
	n    *network
	from net.Conn
}

func (g gate) Read(b []byte) (int, error) {
	k, err := g.from.Read(b)
	<-g.n.open()
	return k, err
}
