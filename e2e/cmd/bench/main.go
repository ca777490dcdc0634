// Command bench measures mgmtd and compares it with the time that the API server needs by itself.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mgmtd/mgmtd/e2e/bench"
)

func main() {
	opts := bench.Options{Out: os.Stdout, Progress: func(line string) {
		fmt.Fprintln(os.Stderr,
			time.Now().Format("15:04:05"), line)
	}}
	flag.StringVar(&opts.Mgmtctl, "mgmtctl", "../bin/mgmtctl", "`path` of mgmtctl")
	flag.StringVar(&opts.Mgmtd, "mgmtd", "../bin/mgmtd", "`path` of mgmtd")
	flag.StringVar(&opts.Baseline, "baseline", "", "`folder` of mgmtctl and mgmtd of another "+
		"version: the same snapshots are measured with both in turns, and the ratio is printed")
	flag.IntVar(&opts.Repeat, "repeat", 5, "how often each figure is measured; the median counts")
	flag.DurationVar(&opts.Idle, "settle", 10*time.Second, "how long nothing is written before "+
		"the first measurement; after more than five minutes the API server has compacted its history")
	sizes := flag.String("objects", "10000,50000", "comma-separated `numbers` of objects, one "+
		"management cluster for each; empty takes no snapshots")
	restoreSizes := flag.String("restore-objects", "4000,20000", "comma-separated `numbers` of "+
		"objects that are restored into an empty management cluster; empty restores nothing")
	flag.IntVar(&opts.Moves, "moves", 3, "how often a live fleet is moved with clusterctl and back "+
		"with mgmtctl; 0 moves nothing")
	flag.IntVar(&opts.Together, "together", 1, "how many copies of each live workload cluster share "+
		"a namespace, which clusterctl pauses whole")
	flag.StringVar(&opts.Record, "record", "", "`file` that gets the figures of the moves: "+
		"measured/clusterctl.json is what the demo prints beside its own")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), `bench starts a bare management cluster (etcd and
kube-apiserver with CRDs) and an S3 server on this machine. It creates workload clusters from
recordings of live ones, and compares the time of a snapshot with the time of the LIST requests that
every snapshot needs. Then it compares the time of a restore into an empty management cluster with
the time of the writes that every such restore needs. At last it moves a live fleet between two
complete management clusters, in turns with clusterctl and with mgmtctl.
It needs the lab (lab build --peers), and mgmtd and mgmtctl (make build). Run nothing else on the
machine meanwhile. The ratios count, not the times.
Exit codes: 0 measured, 1 failed, 2 wrong usage.

Flags:
`)
		flag.PrintDefaults()
	}
	flag.Parse()
	var err, restoreErr error
	opts.Objects, err = numbers(*sizes)
	opts.RestoreObjects, restoreErr = numbers(*restoreSizes)
	if err != nil || restoreErr != nil || flag.NArg() > 0 || opts.Repeat < 1 ||
		opts.Moves < 0 || opts.Together < 1 {
		flag.Usage()
		os.Exit(2)
	}
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench.Run(ctx, opts); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// numbers parses a comma-separated list; an empty text is an empty list.
func numbers(text string) (list []int, err error) {
	if text == "" {
		return nil, nil
	}
	for _, one := range strings.Split(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of objects", one)
		}
		list = append(list, n)
	}
	return list, nil
}
