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

// Workload is a workload cluster that another cloud hands over: its machines and the objects of its
// API server live on in the cloud that takes it over.
type Workload struct {
	// Port of its API server.
	Port int32 `json:"port"`
	// CA and EtcdCA sign the certificates of its API servers and etcd members.
	CA     KeyPair `json:"ca"`
	EtcdCA KeyPair `json:"etcdCA"`
	// Objects are its virtual machines and the objects of its API server, as JSON.
	Objects []json.RawMessage `json:"objects"`
}

// KeyPair is a certificate and its private key, in PEM.
type KeyPair struct {
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
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

// HandOver has the cloud of another version give up a paused workload cluster, and the cloud of c
// continue it. other is the address of that cloud's hand-over endpoint.
func (c Client) HandOver(ctx context.Context, other, namespace, name string) error {
	path := "/workload/" + namespace + "/" + name
	given, err := Client{Address: other}.ask(ctx, http.MethodDelete, path, nil)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPut, path, given)
}

// Ready returns nil when the cloud answers.
func (c Client) Ready(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/readyz", nil)
}

func (c Client) do(ctx context.Context, method, path string, body []byte) error {
	_, err := c.ask(ctx, method, path, body)
	return err
}

// ask returns the body of the answer.
func (c Client) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address+path,
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request %s %s: %w", method, path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the cloud: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("read the cloud's answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: the cloud answered %s: %s", method, path, resp.Status,
			strings.TrimSpace(string(text)))
	}
	return text, nil
}
