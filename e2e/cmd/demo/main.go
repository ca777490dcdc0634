// Command demo shows an outage of a management cluster, and mgmtctl in it.
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
	flag.DurationVar(&opts.Observe, "observe", 30*time.Second, "how long to look on after the restore")
	flag.BoolVar(&opts.Keep, "keep", false, "keep the folder with data, logs, keys and store")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), `demo starts two real management clusters on this machine, provisions a fleet, takes snapshots with mgmtctl, kills the first
management cluster with kill -9, restores into the second one, and reports what became of every object and machine.
It needs the lab (make lab) and mgmtctl, some 3 GiB of memory and a few minutes, and cleans up after itself.
Exit codes: 0 everything is as it was, 1 something is not or the demo failed, 2 wrong usage, 130 interrupted.

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
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the demo at once, and with it every process of the lab
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
