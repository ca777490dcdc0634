package service

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/task"
)

// Recover are the options of a gRPC server whose handlers may panic: the request fails then, and
// the process goes on. They belong behind ServerOptions, which convert the error.
func (s *Server) Recover() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (resp any, err error) {
			err = task.Call(func() (err error) {
				resp, err = handle(ctx, req)
				return err
			})
			return resp, s.panicked(err, "method", info.FullMethod)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
			handle grpc.StreamHandler) error {
			err := task.Call(func() error { return handle(srv, stream) })
			return s.panicked(err, "method", info.FullMethod)
		}),
	}
}

// panicked counts and logs an error that is a panic, and returns it.
func (s *Server) panicked(err error, where ...any) error {
	if p, ok := errors.AsType[*task.PanicError](err); ok {
		s.metrics.panics.Inc()
		s.cfg.Log.Error("panic", append(where, "error", p.Error(), "stack", p.Stack)...)
	}
	return err
}

// guarded returns what f returns, or a panic as its error. The schedules of a daemon read
// documents in goroutines of their own, which have nobody else to recover them.
func guarded[T any](s *Server, name string, f func() (T, error)) (result T, err error) {
	err = task.Call(func() (err error) {
		result, err = f()
		return err
	})
	return result, s.panicked(err, "background", name)
}

// scheduled returns what logs and counts a panic in the loops of a scheduler, which go on.
func (s *Server) scheduled(name string) func(error) {
	return func(err error) { _ = s.panicked(err, "background", name) }
}

// panicPause is the time between two tries to run what panicked.
const panicPause = time.Minute

// background runs what a daemon does by itself until the server stops. What panics begins again
// after a pause: without its schedules a daemon would look well and do nothing.
func (s *Server) background(name string, run func(ctx context.Context)) {
	s.running.Go(func() {
		task.Again(s.ctx, panicPause, func(err error) { _ = s.panicked(err, "background", name) },
			func() { run(s.ctx) })
	})
}
