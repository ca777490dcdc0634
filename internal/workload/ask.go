package workload

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/tidwall/gjson"
)

const (
	// AnswerWithin is how long an API server may take for one answer. Restores ask thousands of
	// them, and most do not answer at all where the network of the workload clusters is not reached.
	AnswerWithin = 2 * time.Second
	// pageItems and pageBytes bound one answer. A Node has up to 50 names of images in its status,
	// about 20 kB.
	pageItems, pageBytes = 100, 4 << 20
	// pages bounds a list: more Nodes than Kubernetes supports (5,000) are not read.
	pages = 60
	// readWithin bounds all answers of one API server together. 5,000 Nodes are 50 pages.
	readWithin = 30 * time.Second
)

// State is what there is of a workload cluster.
type State struct {
	// UID is that of the namespace kube-system: the identity of the cluster.
	UID   string
	Nodes []Node
	// EtcdMembers are those that etcd named, else those that have a Pod in kube-system.
	EtcdMembers []EtcdMember
	// EtcdUnknown says why EtcdMembers is not known; empty when it is.
	EtcdUnknown string
	// EtcdNotAsked says why EtcdMembers is of the Pods although etcd was to be asked.
	EtcdNotAsked string
}

// Node is a Node of a workload cluster.
type Node struct {
	Name, ProviderID string
	ControlPlane     bool
}

// CAError says that the certificate of the server is not of the CA of the workload cluster.
type CAError struct{ Reason string }

func (e *CAError) Error() string { return e.Reason }

// UnknownError says that the state of a workload cluster cannot be known from here.
type UnknownError struct {
	Reason string
	Status int // of the answer; 0 when there was none
}

func (e *UnknownError) Error() string { return e.Reason }

// Ask reads the state of a workload cluster, with the etcd members by their Pods. ca are the
// certificates of its CA, which has to have signed the certificate of the server; none is not
// compared. reading has a place for each API server whose lists are read at once, since a page of
// them takes megabytes; nil has any number. Errors: *CAError, *UnknownError.
func (k *Kubeconfig) Ask(ctx context.Context, ca []*x509.Certificate, reading chan struct{}) (
	*State, error) {
	c, done := k.connect(ca)
	defer done()
	s := &State{}
	ns, err := c.get(ctx, "/api/v1/namespaces/kube-system", nil)
	if err != nil {
		return nil, err
	}
	s.UID = printable(gjson.GetBytes(ns, "metadata.uid").String())
	if s.UID == "" {
		return nil, &UnknownError{Reason: "its answer is not that of an API server"}
	}
	if reading != nil {
		reading <- struct{}{}
		defer func() { <-reading }()
	}
	if err := c.read(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// read reads the Nodes and the Pods of etcd.
func (c *client) read(ctx context.Context, s *State) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	err := c.list(ctx, "/api/v1/nodes", "", func(item gjson.Result) {
		s.Nodes = append(s.Nodes, Node{
			Name:         printable(item.Get("metadata.name").String()),
			ProviderID:   printable(item.Get("spec.providerID").String()),
			ControlPlane: isControlPlane(item.Get("metadata.labels")),
		})
	})
	if err != nil {
		return err
	}
	if err := c.list(ctx, "/api/v1/namespaces/kube-system/pods", "component=etcd,tier=control-plane",
		func(item gjson.Result) {
			pod := printable(item.Get("metadata.name").String())
			name := printable(item.Get("spec.nodeName").String())
			s.EtcdMembers = append(s.EtcdMembers, EtcdMember{Pod: pod,
				Name: cmp.Or(name, strings.TrimPrefix(pod, "etcd-"))})
		}); err != nil {
		s.EtcdMembers, s.EtcdUnknown = nil, err.Error()
	}
	return nil
}

// Reach reports whether the server of the CA answers and accepts the credentials. Any other status
// than that of refused credentials is an answer. Errors: *CAError, *UnknownError.
func (k *Kubeconfig) Reach(ctx context.Context) error {
	c, done := k.connect(nil)
	defer done()
	_, err := c.get(ctx, "/version", nil)
	if unknown, ok := errors.AsType[*UnknownError](err); ok && unknown.Status != 0 &&
		unknown.Status != http.StatusUnauthorized {
		return nil
	}
	return err
}

// isControlPlane reports whether the labels of a Node are those of a control plane. The second one
// is of Kubernetes 1.23 and older.
func isControlPlane(labels gjson.Result) bool {
	for _, label := range []string{`node-role\.kubernetes\.io/control-plane`,
		`node-role\.kubernetes\.io/master`} {
		if labels.Get(label).Exists() {
			return true
		}
	}
	return false
}

type client struct {
	server *url.URL
	token  string
	http   *http.Client
}

// connect returns a client that presents the credentials to the server of the kubeconfig only, and
// a function that closes its connections.
func (k *Kubeconfig) connect(ca []*x509.Certificate) (*client, func()) {
	transport := k.transport(ca)
	transport.ForceAttemptHTTP2 = true
	return k.newClient(transport), transport.CloseIdleConnections
}

// transport returns a transport of HTTP/1.1 that presents the client certificate only to a server
// that ca signed.
func (k *Kubeconfig) transport(ca []*x509.Certificate) *http.Transport {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: k.serverName,
		VerifyConnection: func(s tls.ConnectionState) error { return verify(s.PeerCertificates, ca) }}
	if len(k.ca) > 0 {
		config.RootCAs = pool(k.ca)
	}
	if k.client != nil {
		config.Certificates = []tls.Certificate{*k.client}
	}
	dialer := &net.Dialer{Control: refuseLinkLocal}
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: AnswerWithin, MaxResponseHeaderBytes: 64 << 10}
}

// newClient returns a client of the server of the kubeconfig that follows no redirect.
func (k *Kubeconfig) newClient(transport *http.Transport) *client {
	return &client{server: k.server, token: k.token, http: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

var errLinkLocal = errors.New("an address of the link of this host")

// refuseLinkLocal refuses to connect to an address behind which only services of this host's own
// link are, such as the metadata of a cloud: no workload cluster is there, and the kubeconfig comes
// from a snapshot. It is called with the address that a name stands for. Loopback addresses are not
// refused: a port-forward to an API server has one.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := at.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return errLinkLocal
	}
	return nil
}

var errOtherCA = errors.New("another CA")

// verify checks that one of ca signed the chain of a server. The chain was verified against the CA
// of the kubeconfig before.
func verify(chain, ca []*x509.Certificate) error {
	if len(ca) == 0 || len(chain) == 0 {
		return nil
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: pool(ca),
		Intermediates: pool(chain[1:])}); err != nil {
		return errOtherCA
	}
	return nil
}

// list reads a list in pages.
func (c *client) list(ctx context.Context, path, labels string, fn func(gjson.Result)) error {
	query := url.Values{"limit": {fmt.Sprint(pageItems)}}
	if labels != "" {
		query.Set("labelSelector", labels)
	}
	for range pages {
		body, err := c.get(ctx, path, query)
		if err != nil {
			return err
		}
		// A proxy may answer everything with a page of its own, which says nothing of Nodes.
		if !strings.HasSuffix(gjson.GetBytes(body, "kind").String(), "List") {
			return &UnknownError{Reason: "its answer is not a list"}
		}
		gjson.GetBytes(body, "items").ForEach(func(_, item gjson.Result) bool {
			fn(item)
			return true
		})
		next := gjson.GetBytes(body, "metadata.continue").String()
		if next == "" {
			return nil
		}
		query.Set("continue", next)
	}
	return &UnknownError{Reason: "its lists do not end"}
}

// get returns the body of an answer. Its errors hold none of the words of the server.
func (c *client) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	request, err := c.request(ctx, http.MethodGet, path, query)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unanswered(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, pageBytes+1))
	switch {
	case response.StatusCode != http.StatusOK:
		return nil, refused(response.StatusCode)
	case err != nil:
		return nil, &UnknownError{Reason: "its answer breaks off"}
	case len(body) > pageBytes:
		return nil, &UnknownError{Reason: "its answer is too large"}
	case !gjson.ValidBytes(body):
		return nil, &UnknownError{Reason: "its answer is no JSON"}
	}
	return body, nil
}

// request makes a request with the token of the kubeconfig.
func (c *client) request(ctx context.Context, method, path string, query url.Values) (*http.Request,
	error) {
	to := c.server.JoinPath(path)
	to.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return nil, &UnknownError{Reason: "its server is not a URL that can be asked"}
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return request, nil
}

// refused returns the error of an answer with another status than the expected one.
func refused(status int) error {
	reason := fmt.Sprintf("it answers with status %d", status)
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		reason = fmt.Sprintf("it refuses the credentials (%d)", status)
	}
	return &UnknownError{reason, status}
}

// unanswered returns in our words why there is no answer.
func (c *client) unanswered(err error) error {
	var unverified *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, errOtherCA):
		return &CAError{"its API server at " + c.server.Host + " has a certificate of another CA than " +
			"the one in the snapshot"}
	case errors.Is(err, errLinkLocal):
		return &UnknownError{Reason: "its address is one of the link of this host"}
	case errors.As(err, &unknown):
		return &CAError{"its API server at " + c.server.Host + " has a certificate that the kubeconfig " +
			"does not trust"}
	case errors.As(err, &name):
		return &UnknownError{Reason: "its certificate is for another name"}
	case errors.As(err, &invalid), errors.As(err, &unverified):
		return &UnknownError{Reason: "its certificate is not valid"}
	case errors.Is(err, context.DeadlineExceeded):
		return &UnknownError{Reason: fmt.Sprintf("no answer within %s", AnswerWithin)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &UnknownError{Reason: "connection refused"}
	default:
		return &UnknownError{Reason: "no connection"}
	}
}
