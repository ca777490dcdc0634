package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// overTCP is a daemon that serves TCP, and dials it with a certificate.
type overTCP struct {
	started
	authority
	t *testing.T
}

// serveTCP starts a daemon that serves TCP to the clients, a list in YAML, and a socket to root and
// its own user.
func serveTCP(t *testing.T, clients string, also ...func(*Main)) overTCP {
	t.Helper()
	dir := setup(t, `{unix: s, tcp: "localhost:0", certFile: server.crt, keyFile: server.key, `+
		`clientCAFile: ca.crt, clients: `+clients+`}`)
	a := newAuthority(t)
	a.files(t, dir, "server")
	write(t, dir, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: a.cert.Raw})))
	return overTCP{start(t, dir, also...), a, t}
}

// as dials with a certificate of this common name.
func (o overTCP) as(name string, also ...func(*x509.Certificate)) *grpc.ClientConn {
	o.t.Helper()
	return dial(o.t, "passthrough:///"+o.tcp.String(), credentials.NewTLS(&tls.Config{
		RootCAs: o.pool(), ServerName: "localhost", Certificates: o.client(o.t, name, also...)}))
}

// deniedAs returns the error of a request that the caller may not send; nil for any other outcome.
func deniedAs(err error) *service.Error {
	if e := service.FromStatus(err); e != nil && e.Reason == service.ReasonDenied &&
		status.Code(err) == codes.PermissionDenied && service.ExitCode(err) == service.ExitError {
		return e
	}
	return nil
}

func listOperations(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := mgmtv1.NewOperationServiceClient(conn).ListOperations(ctx,
		&mgmtv1.ListOperationsRequest{})
	return err
}

func pauseSchedule(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := mgmtv1.NewScheduleServiceClient(conn).PauseSchedule(ctx,
		&mgmtv1.PauseScheduleRequest{Name: "nightly"})
	return err
}

func TestACertificateWithoutARoleMayDoNothing(t *testing.T) {
	o := serveTCP(t, `[{name: "cn:ops", role: admin}]`)
	conn := o.as("kubelet", func(c *x509.Certificate) { c.DNSNames = []string{"ops", "node-1"} })
	methods := 0
	for name, s := range o.main.servers[0].GetServiceInfo() {
		for _, m := range s.Methods {
			methods++
			err := callEmpty(t.Context(), conn, "/"+name+"/"+m.Name)
			if name == healthv1.Health_ServiceDesc.ServiceName {
				if err != nil {
					t.Errorf("%s of a probe: %v", m.Name, err)
				}
				continue
			}
			e := deniedAs(err)
			if e == nil || !strings.Contains(e.Message, m.Name+" is refused: no name of the client "+
				"certificate has a role: cn:kubelet, dns:ops, dns:node-1") ||
				!strings.Contains(e.Hint, `spec.listen.clients: [{name: "cn:kubelet", role: `) {
				t.Errorf("%s/%s: %v", name, m.Name, err)
			}
		}
	}
	if methods < 45 {
		t.Errorf("%d methods are served", methods)
	}
	if err := pauseSchedule(t.Context(), o.as("ops")); err != nil {
		t.Errorf("with a role: %v", err)
	}
	if e := deniedAs(listOperations(t.Context(), o.as(""))); e == nil ||
		!strings.Contains(e.Message, "no name that can have a role") {
		t.Errorf("without a name: %v", e)
	}
}

// callEmpty sends an empty request, and returns the error of the first answer.
func callEmpty(ctx context.Context, conn *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(&emptypb.Empty{})
}

func TestARoleOfACertificateIsItsLimit(t *testing.T) {
	o := serveTCP(t, `[{name: "cn:mon", role: view}, {name: "dns:ops.example.com", role: operate},
		{name: "uri:spiffe://example.com/dr", role: restore}, {name: "cn:boss", role: admin}]`)
	spiffe, err := url.Parse("spiffe://example.com/dr")
	if err != nil {
		t.Fatal(err)
	}
	conns := []*grpc.ClientConn{o.as("mon"),
		o.as("mon", func(c *x509.Certificate) { c.DNSNames = []string{"OPS.example.com"} }),
		o.as("", func(c *x509.Certificate) { c.URIs = []*url.URL{spiffe} }), o.as("boss")}
	for _, test := range []struct {
		name  string
		least int // index of the first connection that may do it
		call  func(context.Context, *grpc.ClientConn) error
	}{
		{"list operations", 0, listOperations},
		{"compare with the live source", 1, func(ctx context.Context, conn *grpc.ClientConn) error {
			return firstAnswer(mgmtv1.NewSnapshotServiceClient(conn).DiffSnapshots(ctx,
				&mgmtv1.DiffSnapshotsRequest{From: "latest", Live: true}))
		}},
		{"pause a schedule", 1, pauseSchedule},
		{"plan a restore", 2, func(ctx context.Context, conn *grpc.ClientConn) error {
			return firstAnswer(mgmtv1.NewRestoreServiceClient(conn).PlanRestore(ctx,
				&mgmtv1.PlanRestoreRequest{}))
		}},
		{"send an identity", 2, func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := mgmtv1.NewSnapshotServiceClient(conn).GetSnapshot(ctx,
				&mgmtv1.GetSnapshotRequest{Id: "latest", Identity: []byte("x")})
			return err
		}},
		{"force a finding", 3, func(ctx context.Context, conn *grpc.ClientConn) error {
			return firstAnswer(mgmtv1.NewRestoreServiceClient(conn).PlanRestore(ctx,
				&mgmtv1.PlanRestoreRequest{Spec: &mgmtv1.RestoreSpec{ForceCodes: []string{"ca-mismatch"}}}))
		}},
		{"delete a snapshot", 3, func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := mgmtv1.NewSnapshotServiceClient(conn).DeleteSnapshots(ctx,
				&mgmtv1.DeleteSnapshotsRequest{Ids: []string{"0123456789ab"}})
			return err
		}},
	} {
		for i, conn := range conns {
			err := test.call(t.Context(), conn)
			if e := deniedAs(err); (e != nil) != (i < test.least) {
				t.Errorf("%s as number %d: %v", test.name, i, err)
			}
		}
	}
	e := deniedAs(pauseSchedule(t.Context(), conns[0]))
	if e == nil || e.Message != "PauseSchedule needs the role operate, and cn:mon has the role view" ||
		!strings.Contains(e.Hint, `{name: "cn:mon", role: operate}`) {
		t.Errorf("%+v", e)
	}
}

// firstAnswer returns the error of the first message of a stream.
func firstAnswer[T any](stream grpc.ServerStreamingClient[T], err error) error {
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// TestAConfigurationOfAnEarlierVersionSaysThatNobodyHasARole: before roles every certificate had
// every right.
func TestAConfigurationOfAnEarlierVersionSaysThatNobodyHasARole(t *testing.T) {
	o := serveTCP(t, "[]")
	if e := deniedAs(listOperations(t.Context(), o.as("ops"))); e == nil {
		t.Error("without clients a certificate is served")
	}
	if warnings := o.main.Config.Warnings; len(warnings) != 1 ||
		!strings.Contains(warnings[0].String(), "every request over TCP is refused") {
		t.Errorf("warnings %v", warnings)
	}
	dir := filepath.Dir(o.main.Config.Listen.Unix)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"--config", filepath.Join(dir, "mgmtd.yaml"), "--check"}, &stdout,
		&stderr, nil); code != 0 || !strings.Contains(stderr.String(),
		"warning: mgmtd.yaml: line 7: Config: spec.listen.clients: there is none") {
		t.Errorf("exit code %d: %s%s", code, &stdout, &stderr)
	}
}

// TestTheKernelSaysWhoHasConnected: no request brings a name.
func TestTheKernelSaysWhoHasConnected(t *testing.T) {
	path := filepath.Join(setup(t, "{unix: s}"), "p")
	l, err := service.ListenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	sessions := newSessions()
	conn, auth, err := peerCredentials{sessions}.ServerHandshake(server)
	if err != nil {
		t.Fatal(err)
	}
	u := auth.(*local).Caller().User
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if int(u.UID) != os.Geteuid() || int(u.PID) != os.Getpid() {
		t.Errorf("user %+v", u)
	}
	for _, g := range append(groups, os.Getegid()) {
		if !slices.Contains(u.Groups, uint32(g)) {
			t.Errorf("groups %v lack %d", u.Groups, g)
		}
	}
	if _, _, err := (peerCredentials{sessions}).ServerHandshake(nil); err == nil {
		t.Error("a connection that is no unix socket is served")
	}
	if err := conn.Close(); err != nil || len(sessions.open) > 0 || auth.(*local).Valid() == nil {
		t.Errorf("a closed connection: %v, %v", err, sessions.open)
	}
}

func TestTheSocketIsOpenToTheGroupsThatHaveARole(t *testing.T) {
	own := os.Getegid()
	for groups, mode := range map[string]os.FileMode{
		"[]": 0o600,
		fmt.Sprintf(`[{name: "%d", role: view}]`, own):                                     0o660,
		fmt.Sprintf(`[{name: "%d", role: view}, {name: "%d", role: restore}]`, own, own+1): 0o666,
	} {
		dir := setup(t, "{unix: s, groups: "+groups+"}")
		start(t, dir)
		info, err := os.Stat(filepath.Join(dir, "s"))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("groups %s: %v, %v", groups, info, err)
		}
		// Our own user has every right.
		conn := dial(t, "unix:"+filepath.Join(dir, "s"), insecure.NewCredentials())
		if err := pauseSchedule(t.Context(), conn); err != nil {
			t.Errorf("groups %s: %v", groups, err)
		}
	}
}
