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

	"github.com/mgmtd/mgmtd/internal/service"
)

// logCalls logs each call when it ends: who, which method, how it went. Requests hold identities
// and are never logged.
func logCalls(log *slog.Logger) []grpc.ServerOption {
	end := func(ctx context.Context, method string, began time.Time, err error) {
		attrs := []any{"method", path.Base(method), "took", time.Since(began).Round(time.Millisecond),
			"caller", caller(ctx)}
		level := slog.LevelInfo
		if readsOnly(path.Base(method)) {
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

// readsOnly tells the methods that change nothing.
func readsOnly(method string) bool {
	for _, verb := range []string{"Get", "List", "Watch", "Explain", "Plan", "Check",
		"ServerReflection"} {
		if strings.HasPrefix(method, verb) {
			return true
		}
	}
	return false
}

// caller is the name in the client's certificate, or "local" for who could open the socket.
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
