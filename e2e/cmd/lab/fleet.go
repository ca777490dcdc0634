package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
)

func runFleet(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	live := fleet.Options{Progress: printLine}
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig `file` of the management "+
		"cluster (required)")
	flags.StringVar(&live.Prefix, "namespace-prefix", "", "`prefix` of all namespaces")
	shapes := flags.String("shapes", "", "live: comma-separated `names` of shapes (default: all)")
	var bare fleet.BareOptions
	isBare := flags.Bool("bare", false, "write finished workload clusters into an API server "+
		"without controllers")
	flags.IntVar(&bare.Workloads, "workloads", 10, "bare: number of workload clusters")
	flags.IntVar(&bare.Machines, "machines", 8, "bare: Machines of each workload cluster")
	flags.BoolVar(&bare.MachinePools, "machine-pools", false, "bare: add a MachinePool to every "+
		"second workload cluster")
	flags.BoolVar(&bare.Old, "old", false, "bare: objects of Cluster API 1.10, at v1beta1")
	flags.Uint64Var(&bare.Seed, "seed", 1, "bare: seed of all random names")
	flags.BoolVar(&bare.Fast, "fast", false, "bare: no server-side apply managers in "+
		"managedFields; for tens of thousands of objects")
	timeout := flags.Duration("timeout", 30*time.Minute, "how long it may take")
	record := flags.String("record", "", "record the prototypes of bare fleets into `folder`, and "+
		"do nothing else")
	if err := parse(flags, `lab fleet fills a management cluster with workload clusters.
Live (the default): the controllers provision them in the lab's cloud; done when all are Available.
Bare (--bare): for an API server without controllers and webhooks (lab up --bare). The objects are
written as the controllers would have left them, with owners, finalizers, managedFields, status,
keys and certificates.
The flags alone determine all names. 8 Machines make about 50 objects.
Shapes: `+shapeNames(), args[1:]); err != nil {
		return err
	}
	if *kubeconfig == "" {
		fmt.Fprintln(flags.Output(), "--kubeconfig is required")
		return errUsage
	}
	if *shapes != "" {
		live.Shapes = fleet.Named(strings.Split(*shapes, ",")...)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if *record != "" {
		return fleet.Record(ctx, c, *record)
	}
	if *isBare {
		return createBare(ctx, c, bare, live.Prefix)
	}
	_, err = fleet.Create(ctx, c, live)
	return err
}

func createBare(ctx context.Context, c client.Client, opts fleet.BareOptions, prefix string) error {
	home, err := lab.FindHome()
	if err != nil {
		return err
	}
	opts.Prefix, opts.KeyDir, opts.Progress = prefix, home.Keys(), printLine
	begin := time.Now()
	n, err := fleet.CreateBare(ctx, c, opts)
	if err != nil {
		return err
	}
	printLine(fmt.Sprintf("%d objects in %s", n, time.Since(begin).Round(100*time.Millisecond)))
	return nil
}

func shapeNames() string {
	var names []string
	for _, shape := range fleet.Shapes() {
		names = append(names, shape.Name)
	}
	return strings.Join(names, ", ")
}
