package access

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

var discard = slog.New(slog.DiscardHandler)

// proof is what a connection of a test proves.
type proof struct {
	credentials.CommonAuthInfo
	caller  Caller
	invalid error
}

func (p *proof) Valid() error { return p.invalid }

func (*proof) AuthType() string { return "test" }

func (p *proof) Caller() Caller { return p.caller }

// proving are credentials with which every connection proves the same.
type proving struct {
	credentials.TransportCredentials
	auth credentials.AuthInfo
}

func (p proving) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, p.auth, nil
}

// schedules answers every request.
type schedules struct {
	mgmtv1.UnimplementedScheduleServiceServer
}

func (schedules) ListSchedules(context.Context, *mgmtv1.ListSchedulesRequest) (
	*mgmtv1.ListSchedulesResponse, error) {
	return &mgmtv1.ListSchedulesResponse{}, nil
}

func (schedules) RunSchedule(context.Context, *mgmtv1.RunScheduleRequest) (
	*mgmtv1.RunScheduleResponse, error) {
	return &mgmtv1.RunScheduleResponse{}, nil
}

// serve serves schedules to connections that prove auth. Options more come before those of g.
func serve(t *testing.T, g *Guard, auth credentials.AuthInfo, of mgmtv1.ScheduleServiceServer,
	more ...grpc.ServerOption) mgmtv1.ScheduleServiceClient {
	t.Helper()
	pipe := bufconn.Listen(1 << 16)
	s := grpc.NewServer(slices.Concat(service.ServerOptions(), more, g.ServerOptions(),
		[]grpc.ServerOption{grpc.Creds(proving{insecure.NewCredentials(), auth})})...)
	mgmtv1.RegisterScheduleServiceServer(s, of)
	go func() { _ = s.Serve(pipe) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return mgmtv1.NewScheduleServiceClient(conn)
}

func TestUsersOfTheSocketHaveTheRoleOfTheirGroup(t *testing.T) {
	g := NewGuard(&Rules{UID: 990, Groups: []Group{{"sre", 20, Operate}, {"adm", 4, View}}}, discard)
	for _, test := range []struct {
		name       string
		user       User
		list, run  bool
		text, hint string
	}{
		{"own user", User{UID: 990}, true, true, "", ""},
		{"sre", User{Name: "ada", UID: 1000, Groups: []uint32{100, 20}}, true, true, "", ""},
		{"adm", User{Name: "bob", UID: 1001, Groups: []uint32{4}}, true, false,
			"RunSchedule needs the role operate, and group adm has the role view", "role: operate"},
		{"other", User{Name: "eve", UID: 1002, Groups: []uint32{100}}, false, false,
			"RunSchedule is refused: user eve (uid 1002) is in no group that has a role",
			"spec.listen.groups"},
	} {
		c := serve(t, g, &proof{caller: Caller{User: &test.user}}, schedules{})
		_, err := c.ListSchedules(t.Context(), &mgmtv1.ListSchedulesRequest{})
		if (err == nil) != test.list {
			t.Errorf("%s lists: %v", test.name, err)
		}
		_, err = c.RunSchedule(t.Context(), &mgmtv1.RunScheduleRequest{})
		if (err == nil) != test.run {
			t.Errorf("%s runs: %v", test.name, err)
		}
		if e := service.FromStatus(err); err != nil && (e.Reason != service.ReasonDenied ||
			e.Message != test.text || !strings.Contains(e.Hint, test.hint)) {
			t.Errorf("%s: %+v", test.name, e)
		}
	}
}

func TestAConnectionThatProvesNothingIsRefused(t *testing.T) {
	c := serve(t, NewGuard(&Rules{}, discard), nil, schedules{})
	_, err := c.ListSchedules(t.Context(), &mgmtv1.ListSchedulesRequest{})
	if e := service.FromStatus(err); e == nil || e.Reason != service.ReasonDenied {
		t.Error(err)
	}
}

func TestAConnectionThatIsNotValidAnyMoreIsRefused(t *testing.T) {
	p := &proof{caller: Caller{Names: []string{"cn:a"}}}
	c := serve(t, NewGuard(&Rules{Clients: []Client{{"cn:a", View}}}, discard), p, schedules{})
	for _, invalid := range []error{nil, errors.New("too late")} {
		p.invalid = invalid
		_, err := c.ListSchedules(t.Context(), &mgmtv1.ListSchedulesRequest{})
		if e := service.FromStatus(err); (err != nil) != (invalid != nil) ||
			err != nil && (e.Reason != service.ReasonDenied || !strings.Contains(e.Message, "too late")) {
			t.Errorf("%v: %v", invalid, err)
		}
	}
}

func TestNewRulesHoldForTheNextRequest(t *testing.T) {
	g := NewGuard(&Rules{UID: 1, Clients: []Client{{"cn:a", View}}}, discard)
	c := serve(t, g, &proof{caller: Caller{Names: []string{"cn:a"}}}, schedules{})
	for _, role := range []Role{View, None, View} {
		g.SetRules(&Rules{Clients: []Client{{"cn:a", role}}})
		_, err := c.ListSchedules(t.Context(), &mgmtv1.ListSchedulesRequest{})
		if (err == nil) != (role == View) {
			t.Errorf("with role %s: %v", role, err)
		}
	}
}

// panicking is a service with a bug.
type panicking struct {
	mgmtv1.UnimplementedScheduleServiceServer
}

func (panicking) RunSchedule(context.Context, *mgmtv1.RunScheduleRequest) (
	*mgmtv1.RunScheduleResponse, error) {
	panic("a bug")
}

// TestAPanicIsAuditedAsAFailure: what the handler had done by then is not known.
func TestAPanicIsAuditedAsAFailure(t *testing.T) {
	a := newAuditor(&Rules{Clients: []Client{{"cn:dr", Admin}}})
	s := service.New(service.Config{CatalogFile: t.TempDir() + "/c.db", Log: discard})
	t.Cleanup(func() { _ = s.Close() })
	client := serve(t, a.Guard, &proof{caller: dr}, panicking{}, s.Recover()...)
	if _, err := client.RunSchedule(t.Context(), &mgmtv1.RunScheduleRequest{}); err == nil {
		t.Error("it is no error")
	}
	if text := a.text.String(); !strings.Contains(text, `"outcome":"INTERNAL"`) {
		t.Errorf("audited: %s", text)
	}
}
