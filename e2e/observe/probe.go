package observe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// probeEvery is short enough to notice an API server that is away for a second.
	probeEvery = 200 * time.Millisecond
	// probeTimeout only ends requests that hang. A late answer is no failure; Slowest reports it.
	probeTimeout = 30 * time.Second
	// probeFresh is every how many requests the probe opens a new connection, which shows the
	// server's certificate. (A server that is created again also ends the old connection.) A new
	// connection for each request would cost more CPU than all controllers together.
	probeFresh = 5
)

// Answers sums up the answers of one workload API server.
type Answers struct {
	Workload string // namespace/name
	Nodes    int
	Good     int
	Failures int
	// First is the first failure.
	First string
	// Slowest is the longest time of a good answer, Gap the longest time between two of them.
	Slowest, Gap time.Duration
}

// Probe lists the Nodes of workload API servers every 200 ms, with the kubeconfigs as they were at
// its start. A server fails when it does not answer, its certificate is not signed by the CA it had
// at the start, or it has other Nodes.
type Probe struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	answers map[string]*Answers
}

// StartProbe reads the kubeconfig Secrets of all workload clusters once, or of those in namespaces,
// and starts a Probe. The caller must Stop it.
func StartProbe(ctx context.Context, kubeconfig string, namespaces ...string) (*Probe, error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return nil, err
	}
	kinds, err := v.kinds(ctx)
	if err != nil {
		return nil, err
	}
	index := slices.IndexFunc(kinds, func(k kind) bool {
		return k.Group == coreGroup && k.Kind == "Cluster"
	})
	if index < 0 {
		return nil, errors.New("find workload clusters: the kind Cluster is not installed")
	}
	var targets []*probeTarget
	err = v.each(ctx, kinds[index], namespaces, func(o *unstructured.Unstructured) {
		if len(namespaces) == 0 || slices.Contains(namespaces, o.GetNamespace()) {
			targets = append(targets, &probeTarget{workload: o.GetNamespace() + "/" + o.GetName()})
		}
	})
	for _, target := range targets {
		err = errors.Join(err, target.open(ctx, v))
	}
	if err != nil {
		return nil, err
	}
	return startProbe(ctx, targets), nil
}

func startProbe(ctx context.Context, targets []*probeTarget) *Probe {
	ctx, cancel := context.WithCancel(ctx)
	p := &Probe{cancel: cancel, answers: map[string]*Answers{}}
	for _, target := range targets {
		p.answers[target.workload] = &Answers{Workload: target.workload, Nodes: len(target.nodes)}
		p.done.Go(func() { p.run(ctx, target) })
	}
	return p
}

// probeTarget is one workload API server.
type probeTarget struct {
	workload string
	url      string
	client   *http.Client
	nodes    map[string]string // name to UID and creation time
}

// open reads the kubeconfig Secret and the Nodes of the workload cluster.
func (t *probeTarget) open(ctx context.Context, v *view) error {
	namespace, name, _ := strings.Cut(t.workload, "/")
	secrets := secretsOf(v, namespace)
	secret, err := secrets.Get(ctx, name+"-kubeconfig", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get kubeconfig of %s: %w", t.workload, err)
	}
	value, err := base64.StdEncoding.DecodeString(stringAt(secret, "data", "value"))
	if err != nil {
		return fmt.Errorf("decode kubeconfig of %s: no base64", t.workload)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(value)
	if err != nil {
		return fmt.Errorf("read kubeconfig of %s: it is not valid", t.workload)
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return fmt.Errorf("read client certificate of %s: %w", t.workload, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CAData) {
		return fmt.Errorf("read CA of %s: no certificate", t.workload)
	}
	t.url = config.Host + "/api/v1/nodes"
	t.client = clientFor(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12})
	if t.nodes, err = t.ask(ctx); err != nil {
		return fmt.Errorf("ask %s for its Nodes: %w", t.workload, err)
	}
	if len(t.nodes) == 0 {
		return fmt.Errorf("ask %s for its Nodes: it has none", t.workload)
	}
	return nil
}

func clientFor(config *tls.Config) *http.Client {
	return &http.Client{Timeout: probeTimeout, Transport: &http.Transport{TLSClientConfig: config}}
}

// ask lists the Nodes.
func (t *probeTarget) ask(ctx context.Context) (map[string]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	nodes := map[string]string{}
	for _, node := range list.Items {
		nodes[node.Name] = fmt.Sprintf("%s of %s", node.UID,
			node.CreationTimestamp.UTC().Format(time.RFC3339))
	}
	return nodes, nil
}

func (p *Probe) run(ctx context.Context, t *probeTarget) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	last := time.Now()
	defer func() { p.gap(t, last) }()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if i%probeFresh == 0 {
			t.client.CloseIdleConnections()
		}
		begin := time.Now()
		nodes, err := t.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil && !maps.Equal(nodes, t.nodes) {
			err = fmt.Errorf("its Nodes were %v and are %v", t.nodes, nodes)
		}
		now := time.Now()
		p.mu.Lock()
		answers := p.answers[t.workload]
		if err != nil {
			if answers.Failures++; answers.First == "" {
				answers.First = err.Error()
			}
		} else {
			answers.Good++
			answers.Slowest = max(answers.Slowest, now.Sub(begin))
			answers.Gap = max(answers.Gap, now.Sub(last))
			last = now
		}
		p.mu.Unlock()
	}
}

// gap counts the time since the last good answer at the end of the probe.
func (p *Probe) gap(t *probeTarget, last time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[t.workload].Gap = max(p.answers[t.workload].Gap, time.Since(last))
}

// Stop ends the probe and returns what each workload API server answered, by name.
func (p *Probe) Stop() []Answers {
	p.cancel()
	p.done.Wait()
	var all []Answers
	for _, workload := range slices.Sorted(maps.Keys(p.answers)) {
		all = append(all, *p.answers[workload])
	}
	return all
}
