package main

import (
	"context"
	"log/slog"
	"path"
	"time"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/access"
)

// logCalls logs each call when it ends: the caller, the method, and the error. It never logs a
// request: requests hold identities. Who did what is in the audit log (package access).
func logCalls(log *slog.Logger) []grpc.ServerOption {
	end := func(ctx context.Context, method string, began time.Time, err error) {
		attrs := []any{"method", path.Base(method), "took", time.Since(began).Round(time.Millisecond),
			"caller", caller(ctx)}
		level := slog.LevelDebug
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

// caller names who calls: every name in the client's certificate that can have a role, or the user
// at the other end of the socket.
func caller(ctx context.Context) string {
	if c, ok := access.CallerOf(ctx); ok {
		return c.String()
	}
	return "unknown"
}
