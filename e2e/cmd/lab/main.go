// Command lab builds and runs real Cluster API management clusters on one
// machine, and fills them with workload clusters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const usage = `lab runs real Cluster API management clusters on one machine.

  lab build                   build every program and manifest into .lab (again: seconds)
  lab up --dir DIR --mgmt 2   run management clusters mgmt-1, mgmt-2 until Ctrl-C
  lab add|kill|restart ...    change a running lab: see lab kill -h
  lab fleet ...               fill a management cluster with workload clusters

Every command explains itself with -h.
Exit codes: 0 done, 1 failed, 2 wrong usage.
`

// errUsage says that the usage was printed already.
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The client library wants a logger; all that matters comes back as an error.
	log.SetLogger(logr.Discard())
	commands := map[string]func(context.Context, []string) error{
		"build": runBuild, "up": runUp, "add": runChange, "kill": runChange, "restart": runChange,
		"fleet": runFleet,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch err := commands[os.Args[1]](ctx, os.Args[1:]); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "lab %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// parse reads the flags of a command; help is its text above the flags.
func parse(flags *flag.FlagSet, help string, args []string) error {
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "%s\nFlags:\n", help)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(flags.Output(), "unexpected argument %q\n", flags.Arg(0))
		return errUsage
	}
	return nil
}
