// Command mgmtctl snapshots and restores Cluster API management clusters.
//
// It is a client: every command calls the generated gRPC clients. With --standalone the same
// service runs inside this process, over an in-memory pipe, so that an outage needs a store, a key
// and a kubeconfig, and no daemon.
//
// Results go to stdout, in a table for people or as JSON or YAML for machines; everything else goes
// to stderr. The exit codes are those of internal/service.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mgmtd/mgmtd/internal/heap"
	"github.com/mgmtd/mgmtd/internal/kube"
)

func main() {
	kube.DiscardLogs()
	heap.Bound()
	os.Exit(Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run runs mgmtctl once with args and returns its exit code. The first interrupt stops it between
// two steps; the second returns at once and leaves its work for a resume.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	p := &program{
		stdin:    stdin,
		stdout:   stdout,
		stderr:   &console{w: stderr},
		getenv:   os.Getenv,
		environ:  os.Environ(),
		now:      time.Now,
		signals:  signals,
		terminal: openTerminal,
		backoff:  streamBackoff(),
		serve:    serveStandalone,
	}
	p.interactive = isTerminal(stdin) && isTerminal(stderr)
	p.bars = isTerminal(stderr)
	return p.run(ctx, args)
}
