// Command demo shows mgmtd at work: scheduled snapshots, an outage, a restore and a move.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mgmtd/mgmtd/e2e/demo"
)

func main() {
	opts := demo.Options{Out: os.Stdout}
	flag.StringVar(&opts.Mgmtctl, "mgmtctl", "../bin/mgmtctl", "`path` of mgmtctl")
	flag.StringVar(&opts.Mgmtd, "mgmtd", "../bin/mgmtd", "`path` of mgmtd")
	flag.DurationVar(&opts.Observe, "observe", 60*time.Second, "how long to observe after the move")
	flag.BoolVar(&opts.LeaveFolder, "keep", false,
		"do not remove the folder with data, logs, keys and buckets")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), `demo starts real management clusters on this machine and
provisions a fleet. mgmtd takes snapshots of it into S3. The demo kills the first management cluster
with kill -9, restores its newest snapshot into the second one, moves everything to a third one, and
reports what became of every object and machine.
It needs the lab (make lab), mgmtd and mgmtctl (make build), about 4 GiB of memory and six minutes.
It cleans up after itself.
Exit codes: 0 all checks passed, 1 a check or the demo failed, 2 wrong usage, 130 interrupted.

Flags:
`)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the demo at once, and with it every process of the lab.
	context.AfterFunc(ctx, stop)
	err := demo.Run(ctx, opts)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; everything is cleaned up")
		os.Exit(130)
	default:
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}
