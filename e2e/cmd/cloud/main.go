// Command cloud runs the infrastructure of a lab: see package cloud. It is
// started by a lab and listens on the loopback only.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/mgmtd/mgmtd/e2e/cloud"
	"github.com/mgmtd/mgmtd/e2e/cloud/control"
)

func main() {
	var opts cloud.Options
	controlPort := flag.Int("control-port", 0, "port of the control endpoint")
	flag.IntVar(&opts.DebugPort, "debug-port", 0, "port that lists the workload API servers")
	flag.IntVar(&opts.FirstWorkloadPort, "first-workload-port", 0,
		"first port for workload API servers")
	flag.IntVar(&opts.LastWorkloadPort, "last-workload-port", 0, "last port for workload API servers")
	flag.DurationVar(&opts.SyncPeriod, "sync-period", 20*time.Second,
		"resync period of the provider's controllers")
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *controlPort, opts); err != nil {
		fmt.Fprintln(os.Stderr, "cloud:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, controlPort int, opts cloud.Options) error {
	c, err := cloud.New(ctx, opts)
	if err != nil {
		return err
	}
	defer c.Close()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", controlPort))
	if err != nil {
		return fmt.Errorf("listen for control: %w", err)
	}
	srv := &http.Server{Handler: handler(ctx, c), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve control: %w", err)
	}
	return nil
}

// handler serves what control.Client asks for. Providers live as long as ctx,
// not as long as the request that attached them.
func handler(ctx context.Context, c *cloud.Cloud) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("PUT /mgmt/{name}", func(w http.ResponseWriter, r *http.Request) {
		var mgmt control.Mgmt
		if err := json.NewDecoder(r.Body).Decode(&mgmt); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := c.Attach(ctx, r.Context(), r.PathValue("name"), mgmt); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("PUT /workload/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		var workload control.Workload
		if err := json.NewDecoder(r.Body).Decode(&workload); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		name := r.PathValue("namespace") + "/" + r.PathValue("name")
		if err := c.TakeOver(r.Context(), name, workload); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("DELETE /mgmt/{name}", func(_ http.ResponseWriter, r *http.Request) {
		c.Detach(r.PathValue("name"))
	})
	return mux
}
