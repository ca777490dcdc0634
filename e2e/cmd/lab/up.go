package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/e2e/lab"
)

func runBuild(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	var opts lab.BuildOptions
	flags.BoolVar(&opts.Old, "old", false, "the managers of Cluster API 1.10 as well")
	flags.BoolVar(&opts.Providers, "providers", false, "the Baremetal Operator, in-cluster IPAM, the "+
		"Helm add-on provider and Flux as well")
	flags.BoolVar(&opts.Peers, "peers", false, "clusterctl as well, to compare with")
	if err := parse(flags, `lab build builds everything that a lab runs from Go modules, in
.lab of this repository: kube-apiserver, kube-controller-manager, etcd, Cluster API's managers, the
cloud and this program (.lab/bin), and the CRDs and webhook configurations (.lab/crds,
.lab/webhooks). It needs go, and a module cache or a proxy. It skips what is up to date.`, args[1:]); err != nil {
		return err
	}
	home, err := lab.FindHome()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := lab.Build(ctx, home, opts, printLine); err != nil {
		return err
	}
	printLine(fmt.Sprintf("done in %s: %s", time.Since(begin).Round(100*time.Millisecond), home))
	return nil
}

func runUp(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	opts := lab.Options{Progress: printLine}
	flags.StringVar(&opts.Dir, "dir", "", "empty `folder` for data, logs and kubeconfigs (required)")
	flags.IntVar(&opts.Mgmt, "mgmt", 1, "number of management clusters")
	flags.IntVar(&opts.FirstPort, "first-port", 0, "first of 1000 ports (default: the first free "+
		"block from 20000 on)")
	flags.BoolVar(&opts.Bare, "bare", false, "API servers with CRDs alone: no controllers, no "+
		"webhooks, no cloud")
	flags.BoolVar(&opts.Contracts, "contracts", false, "two management clusters without work of "+
		"controllers: CRDs of Cluster API 1.10, and the current ones with webhooks")
	flags.BoolVar(&opts.Fsync, "fsync", false, "let etcd sync to disk")
	flags.StringVar(&opts.Memory, "memory", "", "GOMEMLIMIT of each API server (default 2GiB, enough "+
		"for 20,000 objects)")
	timeout := flags.Duration("timeout", 5*time.Minute, "how long the start may take")
	if err := parse(flags, `lab up runs management clusters mgmt-1, mgmt-2, ... on one shared
cloud, in the foreground until Ctrl-C or SIGTERM. It writes DIR/<name>/kubeconfig,
DIR/<name>/<role>.log, DIR/cloud.log and DIR/state.json (processes, ports, arguments). "ready" on
stdout means: providers are ready and webhooks answer. Other shells change the lab with lab add,
kill and restart.`, args[1:]); err != nil {
		return err
	}
	if opts.Dir == "" {
		fmt.Fprintln(flags.Output(), "--dir is required")
		return errUsage
	}
	startCtx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	l, err := lab.Start(startCtx, opts)
	if err != nil {
		return err
	}
	defer l.Close()
	listener, err := net.Listen("unix", socket(opts.Dir))
	if err != nil {
		return fmt.Errorf("listen for commands: %w", err)
	}
	srv := &http.Server{Handler: changes(l), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	fmt.Println("ready")
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve commands: %w", err)
	}
	return nil
}

func socket(dir string) string { return filepath.Join(dir, "lab.sock") }

func printLine(line string) { fmt.Println(time.Now().Format("15:04:05"), line) }

// change is a request of lab add, kill or restart to the lab that runs in DIR.
type change struct {
	Verb      string
	Mgmt      string
	APIServer bool // only the API server
	Bare      bool
}

func runChange(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	ch := change{Verb: args[0]}
	dir := flags.String("dir", "", "`folder` of the running lab (required)")
	flags.StringVar(&ch.Mgmt, "mgmt", "", "`name` of the management cluster (required)")
	switch args[0] {
	case "add":
		flags.BoolVar(&ch.Bare, "bare", false, "an API server with CRDs alone")
	default:
		flags.BoolVar(&ch.APIServer, "api-server", false, "the API server alone")
	}
	if err := parse(flags, `lab add, kill and restart change the lab that runs in DIR:
  lab add --dir DIR --mgmt mgmt-3                  a further management cluster on the same cloud
  lab kill --dir DIR --mgmt mgmt-1                 kill -9 of API server, etcd and all managers
  lab restart --dir DIR --mgmt mgmt-1              start all of it again, with its etcd data
  lab kill|restart --dir DIR --mgmt mgmt-1 --api-server`, args[1:]); err != nil {
		return err
	}
	if *dir == "" || ch.Mgmt == "" {
		fmt.Fprintln(flags.Output(), "--dir and --mgmt are required")
		return errUsage
	}
	body, err := json.Marshal(ch)
	if err != nil {
		return fmt.Errorf("marshal command: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket(*dir))
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lab/", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the lab in %s: %w", *dir, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}

func changes(l *lab.Lab) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ch change
		if err := json.NewDecoder(r.Body).Decode(&ch); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := apply(r.Context(), l, ch); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

func apply(ctx context.Context, l *lab.Lab, ch change) error {
	if ch.Verb == "add" {
		add := l.AddMgmt
		if ch.Bare {
			add = l.AddBare
		}
		_, err := add(ctx, ch.Mgmt)
		return err
	}
	m := l.Mgmt(ch.Mgmt)
	switch {
	case m == nil:
		return fmt.Errorf("there is no management cluster %s", ch.Mgmt)
	case ch.Verb == "kill" && ch.APIServer:
		return m.KillAPIServer()
	case ch.Verb == "kill":
		return m.KillAll()
	case ch.APIServer:
		return m.RestartAPIServer(ctx)
	default:
		return m.Restart(ctx)
	}
}
