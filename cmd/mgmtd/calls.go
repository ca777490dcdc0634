package main

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/mgmtd/mgmtd/internal/service"
)

// logCalls logs each call when it ends: the caller, the method, and the error. It never logs a
// request: requests hold identities.
func logCalls(log *slog.Logger) []grpc.ServerOption {
	end := func(ctx context.Context, method string, began time.Time, err error) {
		attrs := []any{"method", path.Base(method), "took", time.Since(began).Round(time.Millisecond),
			"caller", caller(ctx)}
		level := slog.LevelInfo
		if readsOnly(method) {
			level = slog.LevelDebug
		}
		if err != nil {
			e := service.FromStatus(err)
			attrs = append(attrs, "reason", e.Reason, "error", e.Message)
			if e.Reason == service.ReasonInternal {
				level = slog.LevelError
			}
		}
		log.Log(ctx, level, "call", attrs...)
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			began := time.Now()
			resp, err := handle(ctx, req)
			end(ctx, info.FullMethod, began, err)
			return resp, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
			handle grpc.StreamHandler) error {
			began := time.Now()
			err := handle(srv, stream)
			end(stream.Context(), info.FullMethod, began, err)
			return err
		}),
	}
}

// ourServices is the prefix of the full names of the methods of our API.
const ourServices = "/mgmt.v1."

// readsOnly reports whether a method, named in full, changes nothing. A method of our API says so
// in its .proto file, with idempotency_level NO_SIDE_EFFECTS; the other services (health and
// reflection) have no method that changes anything.
func readsOnly(method string) bool {
	if !strings.HasPrefix(method, ourServices) {
		return true
	}
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	o, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// caller returns the name in the client's certificate, or "local" for a client of the unix socket.
func caller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "unknown"
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		return info.State.PeerCertificates[0].Subject.String()
	}
	return "local"
}
