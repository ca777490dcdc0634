// Package control is the client of a running cloud: the small HTTP interface
// through which a lab tells the cloud which management clusters to serve.
//
// It is apart from package cloud so that programs that only talk to a cloud do
// not link Cluster API's controllers.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Mgmt is what the cloud needs to know to serve one management cluster.
type Mgmt struct {
	// Kubeconfig is the path of a kubeconfig with full rights.
	Kubeconfig string `json:"kubeconfig"`
	// WebhookPort is the port on 127.0.0.1 for the provider's webhooks.
	WebhookPort int `json:"webhookPort"`
	// CertDir holds tls.crt and tls.key of these webhooks.
	CertDir string `json:"certDir"`
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter of the objects that are
	// reconciled; empty means all objects.
	WatchFilter string `json:"watchFilter,omitempty"`
}

// Client talks to the cloud whose control endpoint listens on Address
// ("127.0.0.1:port").
type Client struct{ Address string }

// Attach makes the cloud the infrastructure provider of a management cluster
// and returns when its webhooks answer and its caches are filled. A management
// cluster of that name that is already served is detached first.
func (c Client) Attach(ctx context.Context, name string, mgmt Mgmt) error {
	body, err := json.Marshal(mgmt)
	if err != nil {
		return fmt.Errorf("marshal management cluster %s: %w", name, err)
	}
	return c.do(ctx, http.MethodPut, "/mgmt/"+name, body)
}

// Detach ends the controllers and webhooks of one management cluster; the
// workload clusters live on. Detaching one that is not served is no error.
func (c Client) Detach(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/mgmt/"+name, nil)
}

// Ready returns nil when the cloud answers.
func (c Client) Ready(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/readyz", nil)
}

func (c Client) do(ctx context.Context, method, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address+path,
		bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request %s %s: %w", method, path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the cloud: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read the cloud's answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: the cloud answered %s: %s", method, path, resp.Status,
			strings.TrimSpace(string(text)))
	}
	return nil
}
