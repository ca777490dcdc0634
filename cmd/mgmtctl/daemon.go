package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mgmtd/mgmtd/internal/service"
)

const (
	// socketTimeout bounds how long a daemon on this host may take to accept, reachTimeout how long
	// one elsewhere may take to accept and to show its certificate.
	socketTimeout = time.Second
	reachTimeout  = 5 * time.Second
)

// systemSockets are where a daemon of the system listens: by its default, and under systemd's
// RuntimeDirectory.
var systemSockets = []string{"/run/mgmtd.sock", "/run/mgmtd/mgmtd.sock"}

// daemonFlags name the daemon and our certificate.
type daemonFlags struct {
	address                   string
	caFile, certFile, keyFile string
}

func (f *daemonFlags) register(set *pflag.FlagSet) {
	set.SortFlags = false // the help shows them in this order
	set.StringVar(&f.address, "address", "", "`ADDR` of the daemon: unix:///path or, with mutual "+
		"TLS, host:port (default a socket of this host)")
	set.StringVar(&f.caFile, "ca-file", "", "`FILE` with the certificate authority of the daemon, "+
		"for host:port")
	set.StringVar(&f.certFile, "cert-file", "", "`FILE` with our certificate, for host:port")
	set.StringVar(&f.keyFile, "key-file", "", "`FILE` with the key of our certificate, for host:port")
}

// insteadOf is, for each flag of --standalone, what to do when a daemon is used, which has its own
// config.
var insteadOf = []struct{ flag, instead string }{
	{"source-kubeconfig", "name a management cluster of its config with --source"},
	{"source-context", "name a management cluster of its config with --source"},
	{"target-kubeconfig", "name a management cluster of its config with --target"},
	{"target-context", "name a management cluster of its config with --target"},
	{"config", "it has read its own"},
	{"store", "name a storage location of its config with --location"},
	{"plain", "its config says how its storage is encrypted"},
	{"recipient", "its config names the recipients"},
	{"signing-key", "its config names the signing key"},
	{"trusted-key", "its config names the trusted keys"},
	{"catalog", "it has a catalog of its own"},
}

// refuseStandaloneFlags returns an error when a flag is given that a daemon would ignore.
func (p *program) refuseStandaloneFlags(cmd *cobra.Command) error {
	for _, f := range insteadOf {
		if p.typed(f.flag) {
			return usageError(cmd, "--%s needs --standalone: a daemon uses its own config; %s", f.flag,
				f.instead)
		}
	}
	return nil
}

// checkDaemon returns an error when flags contradict each other, before anything is opened.
func (p *program) checkDaemon(cmd *cobra.Command) error {
	address := p.daemon.address
	tlsFlags := []string{"ca-file", "cert-file", "key-file"}
	if address == "" {
		for _, name := range tlsFlags {
			if p.typed(name) {
				return usageError(cmd, "--%s needs --address host:port", name)
			}
		}
		return nil
	}
	network, _, err := parseAddress(address)
	if err != nil {
		return usageError(cmd, "address %q: %s", address, err)
	}
	var missing []string
	for _, name := range tlsFlags {
		switch {
		case network == "unix" && p.typed(name):
			return usageError(cmd, "--%s is for host:port: the daemon's socket has no TLS", name)
		case network == "tcp" && !p.given(name):
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return usageError(cmd, "address %s is TCP, which the daemon serves with mutual TLS only: "+
			"this needs %s", address, strings.Join(missing, ", "))
	}
	return p.refuseStandaloneFlags(cmd)
}

// parseAddress splits an address into the network and the address of net.Dial.
func parseAddress(address string) (network, where string, err error) {
	const want = "want unix:///path or host:port"
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		if !filepath.IsAbs(path) {
			return "", "", errors.New(want + ": the path of a socket is absolute")
		}
		return "unix", path, nil
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(address, "tcp://"))
	if err != nil || host == "" || port == "" || strings.Contains(host, "/") {
		return "", "", errors.New(want)
	}
	return "tcp", net.JoinHostPort(host, port), nil
}

// connectDaemon dials the daemon of --address, else one of this host: that of the user, then that
// of the system.
func (p *program) connectDaemon(ctx context.Context) (*connection, error) {
	if address := p.daemon.address; address != "" {
		return p.connectAddress(ctx, address)
	}
	sockets := systemSockets
	if dir := p.getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		sockets = append([]string{filepath.Join(dir, "mgmtd.sock")}, sockets...)
	}
	tried := make([]string, len(sockets))
	for i, socket := range sockets {
		err := probe(ctx, "unix", socket, nil)
		if err == nil {
			return newConnection(dial("unix://"+socket, insecure.NewCredentials()))
		}
		if tried[i] = socket; errors.Is(err, os.ErrPermission) {
			tried[i] += " (permission denied)"
		}
	}
	return nil, &service.Error{
		Reason:  service.ReasonUnreachable,
		Message: fmt.Sprintf("reach mgmtd: no daemon answers at %s", strings.Join(tried, " or ")),
		Hint:    "start mgmtd, name it with --address, or give --standalone to work without it",
	}
}

func (p *program) connectAddress(ctx context.Context, address string) (*connection, error) {
	network, where, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	target, creds := "unix://"+where, insecure.NewCredentials()
	var config *tls.Config
	if network == "tcp" {
		if config, err = p.daemon.tls(); err != nil {
			return nil, err
		}
		target, creds = "dns:///"+where, credentials.NewTLS(config)
	}
	if err := probe(ctx, network, where, config); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, unreachable(address, err)
	}
	return newConnection(dial(target, creds))
}

// tls reads our certificate and the certificate authority of the daemon.
func (f *daemonFlags) tls() (*tls.Config, error) {
	unusable := func(flag string, err error) error {
		return &service.Error{Reason: service.ReasonUsage, Message: fmt.Sprintf("read --%s: %v", flag,
			err),
			Hint: "give PEM files: the authority of the daemon's certificate, and our own certificate " +
				"with its key"}
	}
	authorities, err := os.ReadFile(f.caFile)
	if err != nil {
		return nil, unusable("ca-file", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, unusable("ca-file", fmt.Errorf("%s holds no certificate", f.caFile))
	}
	if _, err := tls.LoadX509KeyPair(f.certFile, f.keyFile); err != nil {
		return nil, unusable("cert-file and --key-file", err)
	}
	// The files are read at each connection: a certificate may be renewed while an operation is
	// followed, and the daemon ends connections with the certificate that they began with.
	own := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		return &pair, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, GetClientCertificate: own,
		NextProtos: []string{"h2"}}, nil
}

// probe checks that something answers and, with TLS, that each side accepts the certificate of the
// other. grpc would wait and retry, and report a certificate error in the words of its own
// transport.
func probe(ctx context.Context, network, where string, config *tls.Config) error {
	limit := socketTimeout
	if config != nil {
		limit = reachTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if config == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, where)
		if err != nil {
			return err
		}
		_ = conn.Close() // it was only asked
		return nil
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, where)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it was only asked
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	// In TLS 1.3 the handshake of a client ends before the server has checked its certificate. The
	// first byte of the server, the beginning of HTTP/2, shows that it was accepted.
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for its first answer: %w", err)
	}
	return nil
}

// unreachable returns the error for a daemon that does not answer, with a hint.
func unreachable(address string, err error) error {
	e := &service.Error{Reason: service.ReasonUnreachable,
		Message: fmt.Sprintf("reach mgmtd at %s: %v", address, err),
		Hint:    "check that mgmtd runs and listens there, or give --standalone to work without it"}
	says := func(what, hint string) {
		e.Message, e.Hint = fmt.Sprintf("reach mgmtd at %s: %s: %v", address, what, err), hint
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		says("its certificate is not trusted", "--ca-file must hold the authority that signed it, and "+
			"it must be for the host in --address")
	} else if _, ok := errors.AsType[tls.AlertError](err); ok ||
		strings.Contains(err.Error(), "remote error: tls:") {
		says("it refuses our certificate", "--cert-file must be signed by an authority that the "+
			"daemon's config names as clientCAFile, and not be expired")
	} else if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		says("what listens there does not speak TLS", "check the port: it must be the one of "+
			"listen.tcp in the daemon's config")
	}
	return e
}

func dial(target string, creds credentials.TransportCredentials, opts ...grpc.DialOption) (
	*grpc.ClientConn, error) {
	// No proxy: a daemon is reached directly, as the probe has just done.
	opts = append(opts, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return conn, nil
}
