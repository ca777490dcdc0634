package workload

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/spdystream"
	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"

	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// upgradeTo and forwardProtocol are what a port-forward asks an API server for (kubernetes
	// v1.36, staging/src/k8s.io/client-go/tools/portforward/portforward.go).
	upgradeTo, forwardProtocol = "SPDY/3.1", "portforward.k8s.io"
	// forwardBytes bounds everything that comes through a connection to a Pod.
	forwardBytes = 1 << 20
	// streamHeaders and streamHeaderBytes bound the headers of its streams. Without limits, few
	// compressed bytes may become much memory.
	streamHeaders, streamHeaderBytes = 16, 4 << 10
)

// forward opens a connection to a port of a Pod in kube-system through the API server, as kubectl
// port-forward does. It ends with ctx. Errors: *CAError, *UnknownError.
func (k *Kubeconfig) forward(ctx context.Context, ca []*x509.Certificate, pod string, port int) (
	net.Conn, error) {
	raw, err := k.upgrade(ctx, ca, "/api/v1/namespaces/kube-system/pods/"+pod+"/portforward")
	if err != nil {
		return nil, err
	}
	session, err := spdystream.NewConnectionWithOptions(&upgraded{raw, io.LimitReader(raw,
		forwardBytes)}, false, spdy.WithMaxControlFramePayloadSize(streamHeaders*streamHeaderBytes),
		spdy.WithMaxHeaderCount(streamHeaders), spdy.WithMaxHeaderFieldSize(streamHeaderBytes))
	if err != nil {
		_ = raw.Close() // what failed is reported
		return nil, &UnknownError{Reason: "its answer is no forwarding"}
	}
	f := &forwarded{raw: raw, served: make(chan struct{})}
	go func() {
		defer close(f.served)
		// It reads what an API server sends. The goroutines that it begins itself cannot be guarded.
		err := task.Call(func() error {
			session.Serve(func(s *spdystream.Stream) { _ = s.Reset() }) // the server has none to open
			return nil
		})
		if err != nil {
			_ = raw.Close() // which ends what waits for an answer
		}
	}()
	f.stop = context.AfterFunc(ctx, func() { _ = raw.Close() })
	if err := f.open(session, port); err != nil {
		_ = f.Close() // what failed is reported
		return nil, err
	}
	return f, nil
}

// upgrade turns a request into a connection.
func (k *Kubeconfig) upgrade(ctx context.Context, ca []*x509.Certificate, path string) (
	io.ReadWriteCloser, error) {
	transport := k.transport(ca)
	defer transport.CloseIdleConnections()
	c := k.newClient(transport)
	request, err := c.request(ctx, http.MethodPost, path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", upgradeTo)
	request.Header.Set("X-Stream-Protocol-Version", forwardProtocol)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unanswered(err)
	}
	raw, writable := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !writable ||
		!strings.EqualFold(response.Header.Get("Upgrade"), upgradeTo) {
		_ = response.Body.Close() // what failed is reported
		return nil, refused(response.StatusCode)
	}
	return raw, nil
}

// forwarded is a connection to a port of a Pod.
type forwarded struct {
	*spdystream.Stream
	errors *spdystream.Stream // where the kubelet would say why it cannot forward
	raw    io.Closer
	served chan struct{}
	stop   func() bool
	once   sync.Once
}

// open opens the two streams of a port. It waits for no reply: the first byte of etcd is one, and a
// connection that ends before ends the streams.
func (f *forwarded) open(session *spdystream.Connection, port int) error {
	var err error
	for _, s := range []struct {
		kind string
		to   **spdystream.Stream
	}{{corev1.StreamTypeError, &f.errors}, {corev1.StreamTypeData, &f.Stream}} {
		if *s.to, err = session.CreateStream(http.Header{corev1.StreamType: {s.kind},
			corev1.PortHeader: {fmt.Sprint(port)}, corev1.PortForwardRequestIDHeader: {"0"}}, nil,
			false); err != nil {
			return &UnknownError{Reason: "its forwarding breaks off"}
		}
	}
	return nil
}

// Close closes the connection and waits for what serves it. A stream that nobody reads, and a reset
// that nobody waits for, would hold that up for good (moby/spdystream v0.5.1, connection.go,
// handleDataFrame and handleResetFrame).
func (f *forwarded) Close() error {
	f.once.Do(func() {
		f.stop()
		_ = f.raw.Close() // nothing was to be written
		for _, s := range f.streams() {
			_ = s.Reset() // the connection is closed
		}
		for {
			select {
			case <-f.served:
				return
			case <-time.After(time.Millisecond):
				for _, s := range f.streams() {
					_ = s.WaitTimeout(time.Nanosecond)
				}
			}
		}
	})
	return nil
}

// streams returns the streams that were opened.
func (f *forwarded) streams() []*spdystream.Stream {
	return slices.DeleteFunc([]*spdystream.Stream{f.errors, f.Stream},
		func(s *spdystream.Stream) bool { return s == nil })
}

// upgraded is the connection below a forwarding, of which a bounded number of bytes is read.
type upgraded struct {
	io.WriteCloser
	io.Reader
}

var _ net.Conn = (*upgraded)(nil)

// podAddr stands for an address, which a connection through an API server does not have.
type podAddr struct{}

func (podAddr) Network() string { return forwardProtocol }
func (podAddr) String() string  { return forwardProtocol }

func (*upgraded) LocalAddr() net.Addr              { return podAddr{} }
func (*upgraded) RemoteAddr() net.Addr             { return podAddr{} }
func (*upgraded) SetDeadline(time.Time) error      { return nil } // it ends with the context
func (*upgraded) SetReadDeadline(time.Time) error  { return nil }
func (*upgraded) SetWriteDeadline(time.Time) error { return nil }
