package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// DefaultFieldManager is the name under which this product's writes appear in managedFields. It
// must not begin with "kubectl" or "before-first-apply": Flux takes over fields of such managers.
const DefaultFieldManager = "mgmtd"

// MarkPrefix begins the field managers of the writes with which an operation creates an object. The
// id of the operation follows: the entry in managedFields marks the object as created by it.
const MarkPrefix = DefaultFieldManager + "-"

// connectTimeout bounds the first answer of an API server; a dead host would otherwise hold the
// caller for minutes.
const connectTimeout = 10 * time.Second

// Options say how to reach a management cluster.
type Options struct {
	// Name is the display name; empty takes the name of the kubeconfig's context.
	Name string
	// KubeconfigFile is the path of the kubeconfig. It is never taken from the environment: on the
	// worst night $KUBECONFIG points at the wrong place.
	KubeconfigFile string
	// Context is the context in the kubeconfig; empty takes its current one.
	Context string
	// KindCache is shared by the connections of a process, so that later ones do not read all
	// CustomResourceDefinitions again; nil caches nothing.
	KindCache *KindCache
}

// KubeconfigError means that a kubeconfig cannot be used.
type KubeconfigError struct {
	File string
	Err  error
}

func (e *KubeconfigError) Error() string {
	return fmt.Sprintf("read kubeconfig %s: %v", e.File,
		e.Err)
}
func (e *KubeconfigError) Unwrap() error { return e.Err }

// Hint says what the operator can do.
func (e *KubeconfigError) Hint() string {
	return "give the path of a readable kubeconfig, and one of its contexts"
}

// HintKey names the flags for kubeconfigs.
func (e *KubeconfigError) HintKey() object.HintKey { return object.HintKubeconfig }

// UnreachableError means that a management cluster does not answer, or refuses the credentials.
type UnreachableError struct {
	Name, Host string
	Err        error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("reach management cluster %s at %s: %v", e.Name, e.Host, e.Err)
}
func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint says what the operator can do.
func (e *UnreachableError) Hint() string {
	return "check that its API server runs, that this host can reach it, and that the credentials " +
		"in the kubeconfig are still valid"
}

// Mgmt is a management cluster that answered. It holds no credentials in printable form.
type Mgmt struct {
	name    string
	uid     types.UID
	version string
	opts    Options
	client  *rest.RESTClient
	kinds   *crdCache
	api     *API
	// kubeconfig is the content of its file.
	kubeconfig []byte
}

// API is how an API server is reached. It identifies a management cluster also when that does not
// answer.
type API struct {
	Server string `json:"server"`
	// CA are hashes of the public keys of the CA certificates (workload.KeyIDs).
	CA []string `json:"ca,omitempty"`
}

func apiOf(cfg *rest.Config) *API {
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		ca, _ = os.ReadFile(cfg.CAFile) // the connection itself reports what is wrong with it
	}
	return &API{Server: cfg.Host, CA: workload.KeyIDs(workload.Certificates(ca))}
}

// Connect reads the kubeconfig, reaches the API server and learns the identity of the management
// cluster. It returns a *KubeconfigError or an *UnreachableError.
func Connect(ctx context.Context, o Options) (*Mgmt, error) {
	if o.KubeconfigFile == "" {
		return nil, &KubeconfigError{File: `""`, Err: errors.New("no file named")}
	}
	content, err := os.ReadFile(o.KubeconfigFile)
	if err != nil {
		return nil, &KubeconfigError{File: o.KubeconfigFile, Err: err}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.KubeconfigFile},
		&clientcmd.ConfigOverrides{CurrentContext: o.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, &KubeconfigError{File: o.KubeconfigFile, Err: err}
	}
	if err := checkContext(raw, contextName(raw, o.Context)); err != nil {
		return nil, &KubeconfigError{File: o.KubeconfigFile, Err: err}
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, &KubeconfigError{File: o.KubeconfigFile, Err: err}
	}
	name := o.Name
	if name == "" {
		name = contextName(raw, o.Context)
	}
	client, err := newRESTClient(cfg)
	if err != nil {
		return nil, &KubeconfigError{File: o.KubeconfigFile, Err: err}
	}
	m := &Mgmt{name: name, opts: o, client: client, api: apiOf(cfg), kubeconfig: content}
	if err := m.reach(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// Again is Connect with the options of m. It keeps the connections of m, unless the kubeconfig has
// changed: those through a proxy are shared with no other client, so that a caller that asks again
// and again would leave one behind each time.
func (m *Mgmt) Again(ctx context.Context) (*Mgmt, error) {
	content, err := os.ReadFile(m.opts.KubeconfigFile)
	if err != nil || !bytes.Equal(content, m.kubeconfig) {
		return Connect(ctx, m.opts)
	}
	again := *m
	if err := again.reach(ctx); err != nil {
		return nil, err
	}
	return &again, nil
}

// reach learns the identity of the management cluster.
func (m *Mgmt) reach(ctx context.Context) error {
	if err := m.identify(ctx); err != nil {
		return &UnreachableError{Name: m.name, Host: m.api.Server, Err: err}
	}
	m.kinds = m.opts.KindCache.of(m.uid)
	return nil
}

// checkContext says what a kubeconfig lacks for a context, where client-go would ask for variables
// of the environment, which nothing here reads.
func checkContext(raw clientcmdapi.Config, name string) error {
	names := strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	in := raw.Contexts[name]
	switch {
	case names == "":
		return errors.New("it holds no context")
	case name == "":
		return fmt.Errorf("it has no current context; it has %s", names)
	case in == nil:
		return fmt.Errorf("it has no context %q; it has %s", name, names)
	case raw.Clusters[in.Cluster] == nil:
		return fmt.Errorf("its context %q names cluster %q, which it does not have", name, in.Cluster)
	case in.AuthInfo != "" && raw.AuthInfos[in.AuthInfo] == nil:
		return fmt.Errorf("its context %q names user %q, which it does not have", name, in.AuthInfo)
	}
	return nil
}

func contextName(raw clientcmdapi.Config, context string) string {
	if context != "" {
		return context
	}
	return raw.CurrentContext
}

// newRESTClient makes the one client of a management cluster. It speaks JSON, since snapshots
// store the bytes of the server unchanged. It has no client-side rate limit: the API server's
// priority and fairness does that better, and the callers bound the number of requests in flight.
func newRESTClient(cfg *rest.Config) (*rest.RESTClient, error) {
	return newGuardedClient(cfg, guard{silence: maxSilence, most: maxAnswer})
}

func newGuardedClient(cfg *rest.Config, g guard) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		g.next = next
		return g
	})
	cfg.QPS = -1
	cfg.UserAgent = DefaultFieldManager
	// gzip costs an API server about as much as the LIST itself; mgmtd is near it, and an API
	// server has better to do (kubectl has --disable-compression for the same).
	cfg.DisableCompression = true
	// about objects that are not ours to change: their own controllers wrote them so
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.ContentConfig = JSONContent()
	return rest.UnversionedRESTClientFor(cfg)
}

// identify learns the UID of kube-system, which is the identity of a management cluster, and the
// server's version.
func (m *Mgmt) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	ns := &corev1.Namespace{}
	if err := m.client.Get().AbsPath("/api/v1/namespaces/kube-system").Do(ctx).Into(ns); err != nil {
		return fmt.Errorf("get namespace kube-system: %w", err)
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := getJSON(ctx, m.client, "/version", &v); err != nil {
		return err
	}
	m.uid, m.version = ns.UID, v.GitVersion
	return nil
}

// Name is the display name.
func (m *Mgmt) Name() string { return m.name }

// UID is the identity: the UID of the kube-system namespace.
func (m *Mgmt) UID() string { return string(m.uid) }

// KubernetesVersion is the server's version, for example v1.36.3.
func (m *Mgmt) KubernetesVersion() string { return m.version }

// API is how the API server is reached.
func (m *Mgmt) API() *API { return m.api }

// Reader returns a client that only reads.
func (m *Mgmt) Reader() *Reader { return &Reader{client: m.client, kinds: m.kinds} }

// Writer returns a client that changes objects. Only journaled steps may call it.
func (m *Mgmt) Writer() *Writer { return &Writer{client: m.client} }

// Prober returns a client for access reviews and dry-run creates, which change nothing.
func (m *Mgmt) Prober() *Prober { return &Prober{client: m.client} }

// JSONContent returns the content configuration of clients that speak JSON and do not convert
// objects.
func JSONContent() rest.ContentConfig {
	return rest.ContentConfig{
		ContentType: "application/json", AcceptContentTypes: "application/json",
		NegotiatedSerializer: serializer.WithoutConversionCodecFactory{CodecFactory: scheme.Codecs},
	}
}
