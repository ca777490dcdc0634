// Command mgmtd is the daemon: it takes snapshots of Cluster API management clusters by schedule,
// and carries out the snapshots, restores and moves that mgmtctl asks for over gRPC.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/heap"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/config"
)

func main() {
	kube.DiscardLogs()
	heap.Bound()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, signals))
}

// flags of the command line.
type flags struct {
	config    string
	check     bool
	logLevel  string
	logFormat string
}

// run runs mgmtd once and returns its exit code. The first SIGTERM or SIGINT ends it after the
// current steps, the second at once.
func run(ctx context.Context, args []string, stdout, stderr io.Writer,
	signals <-chan os.Signal) int {
	var f flags
	cmd := &cobra.Command{
		Use:           "mgmtd --config FILE",
		Short:         "Scheduled snapshots, restores and moves of Cluster API management clusters",
		Long:          long,
		Example:       examples,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(fmt.Errorf("takes no argument, got %q", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), f, stdout, stderr,
				signals)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `FILE`; required")
	cmd.Flags().BoolVar(&f.check, "check", false, "check the configuration and the files that it "+
		"names, say what is wrong, and exit")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "`LEVEL` of the log: debug, info, "+
		"warn or error")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
	cmd.SetVersionTemplate("mgmtd {{.Version}} (" + runtime.Version() + ")\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil || errors.Is(err, errAtOnce) {
		return exitCode(err)
	}
	e := service.FromStatus(err)
	fmt.Fprintf(stderr, "mgmtd: %s\n", e.Message)
	if e.Hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", e.Hint)
	}
	return exitCode(err)
}

// errAtOnce says that a second signal came.
var errAtOnce = errors.New("ended at once")

func exitCode(err error) int {
	if errors.Is(err, errAtOnce) {
		return service.ExitInterrupted
	}
	return service.ExitCode(err)
}

func usage(err error) error {
	return &service.Error{Reason: service.ReasonUsage, Message: err.Error(),
		Hint: `see "mgmtd --help"`}
}

// release is the version that the linker sets (-X main.release); empty for the version of the
// module.
var release string

func version() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(release, module, "(devel)")
}

// serve runs the daemon until a signal.
func serve(ctx context.Context, f flags, stdout, stderr io.Writer,
	signals <-chan os.Signal) (err error) {
	logs, err := newLogs(f, stderr)
	if err != nil {
		return err
	}
	if f.config == "" {
		return usage(errors.New("--config is missing"))
	}
	cfg, err := config.Load(f.config)
	if err != nil {
		// The hints are part of its lines.
		return &service.Error{Reason: service.ReasonUsage, Message: err.Error(),
			Hint: "docs/config.md has every field"}
	}
	if f.check {
		for _, w := range cfg.Warnings {
			fmt.Fprintf(stderr, "warning: %s: %s\n", filepath.Base(f.config), w)
		}
		fmt.Fprintf(stdout, "%s: nothing is wrong: %d management clusters, %d storage locations, "+
			"%d schedules\n",
			f.config, len(cfg.Service.Sources), len(cfg.Service.Locations), len(cfg.Service.Schedules))
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := logs.openAudit(cfg.AuditLog); err != nil {
		return &service.Error{Reason: service.ReasonUsage, Message: err.Error(),
			Hint: "name a file that mgmtd can write"}
	}
	defer func() { err = errors.Join(err, logs.close()) }()
	reload := make(chan struct{}, 1)
	m := &Main{Config: cfg, File: f.config, Reload: reload, ReopenAudit: logs.reopenAudit,
		Log: logs.log, Audit: logs.audit, Version: version(), NotifySocket: os.Getenv("NOTIFY_SOCKET"),
		Watchdog: watchdogInterval(os.Getenv)}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for stopping := false; ; {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				select {
				case reload <- struct{}{}:
				default: // a reload that has not begun yet is enough
				}
			case stopping:
				logs.log.Error("second signal: ended at once, operations are left as after a crash")
				return errAtOnce
			default:
				logs.log.Info("signal: stops after the current steps", "signal", s.String())
				stopping = true
				cancel()
			}
		}
	}
}
