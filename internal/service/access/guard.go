package access

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mgmtd/mgmtd/internal/service"
)

// Guard refuses requests that their callers may not send, and writes the audit log.
type Guard struct {
	rules atomic.Pointer[Rules]
	audit *slog.Logger
	// denials bounds the lines of refused requests, suppressed counts those without one: somebody
	// without any right must not fill the disk.
	denials    *rate.Limiter
	suppressed atomic.Int64
}

// The lines of refused requests: so many at once, then one a second.
const (
	denialsAtOnce    = 100
	denialsPerSecond = 1
)

// errPanicked is the outcome of a request whose handler never returns. Server.Recover of package
// service, which comes before the guard, answers such a request.
var errPanicked = status.Error(codes.Internal, "the request ended in a panic")

// NewGuard makes a guard that writes its audit log to a logger.
func NewGuard(rules *Rules, audit *slog.Logger) *Guard {
	g := &Guard{audit: audit, denials: rate.NewLimiter(denialsPerSecond, denialsAtOnce)}
	g.SetRules(rules)
	return g
}

// SetRules replaces the rules for all requests to come, and returns those before.
func (g *Guard) SetRules(rules *Rules) (before *Rules) { return g.rules.Swap(rules) }

// ServerOptions are the options of every gRPC server that the guard watches. They follow those of
// service.ServerOptions, which turn its errors into statuses.
func (g *Guard) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (resp any, err error) {
			c := g.begin(ctx, info.FullMethod)
			err = errPanicked
			defer func() { c.audit(err) }()
			if err := c.admit(req); err != nil {
				return nil, err
			}
			resp, err = handle(ctx, req)
			if err == nil {
				c.result = resultAttrs(resp)
			}
			return resp, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
			handle grpc.StreamHandler) (err error) {
			c := g.begin(stream.Context(), info.FullMethod)
			err = errPanicked
			defer func() { c.audit(err) }()
			if err := c.admit(nil); err != nil {
				return err
			}
			return handle(srv, &guardedStream{ServerStream: stream, call: c})
		}),
	}
}

// guardedStream checks each message that it receives: that of a request comes after the call began.
type guardedStream struct {
	grpc.ServerStream
	call     *call
	answered bool
}

func (s *guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.call.admit(m)
}

func (s *guardedStream) SendMsg(m any) error {
	if !s.answered { // the first message says what a stream is about
		s.answered, s.call.result = true, resultAttrs(m)
	}
	return s.ServerStream.SendMsg(m)
}

// call is one request.
type call struct {
	guard  *Guard
	ctx    context.Context
	method string
	caller Caller
	known  bool // the connection proves who calls
	role   Role
	by     string

	need    need
	denied  bool
	request proto.Message // nil before it has come
	result  []slog.Attr
}

func (g *Guard) begin(ctx context.Context, method string) *call {
	c := &call{guard: g, ctx: ctx, method: method}
	if c.caller, c.known = CallerOf(ctx); c.known {
		c.role, c.by = g.rules.Load().Role(c.caller)
	}
	return c
}

// admit returns a *service.Error with reason DENIED unless the caller may send the request. req is
// nil before a stream has brought it.
func (c *call) admit(req any) error {
	c.request, _ = req.(proto.Message)
	n, ok := needOf(c.method, c.request)
	c.need = n
	if info := authInfo(c.ctx); info != nil && n.role > None {
		if err := info.Valid(); err != nil {
			c.denied = true
			return &service.Error{Reason: service.ReasonDenied, Message: n.what + " is refused: " +
				err.Error(), Hint: "connect once more, with a certificate that is valid"}
		}
	}
	if ok && c.role >= n.role {
		return nil
	}
	c.denied = true
	return c.refusal(ok)
}

// refusal says what is refused to whom, and what the operator of mgmtd would change.
func (c *call) refusal(knownMethod bool) error {
	what, by := c.need.what, clean(c.by)
	e := &service.Error{Reason: service.ReasonDenied}
	clients := func(name string) string {
		return fmt.Sprintf("the operator of mgmtd gives the certificate the role: "+
			"spec.listen.clients: [{name: %q, role: %s}]", name, c.need.role)
	}
	switch {
	case !knownMethod:
		e.Message = what + " is refused: this version of mgmtd does not know which role it needs"
		return e
	case !c.known:
		e.Message = what + " is refused: the connection does not prove who calls"
		return e
	case c.caller.User != nil:
		e.Message = fmt.Sprintf("%s is refused: user %s is in no group that has a role", what, c.caller)
		e.Hint = fmt.Sprintf("the operator of mgmtd gives a group of that user the role: "+
			"spec.listen.groups: [{name: GROUP, role: %s}]", c.need.role)
	case len(c.caller.Names) == 0:
		e.Message = what + " is refused: the client certificate has no name that can have a role"
		e.Hint = "use a certificate with a common name, a DNS name or a URI"
	case c.role == None:
		e.Message = fmt.Sprintf("%s is refused: no name of the client certificate has a role: %s", what,
			namesText(c.caller.Names))
		e.Hint = clients(clean(c.caller.Names[0]))
	default:
		e.Hint = clients(by)
	}
	if c.role > None {
		e.Message = fmt.Sprintf("%s needs the role %s, and %s has the role %s", what, c.need.role, by,
			c.role)
	}
	return e
}
