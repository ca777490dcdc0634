package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// writes is how many writes the floor sends at once: the throughput of an API server levels off
// there.
const writes = 32

// resourceVersion stands in a body for the version that the server gave to the object before.
const resourceVersion = "@resource-version@"

// needed are the requests that bring one object to a management cluster.
type needed struct {
	path string // of its collection
	name string
	// create, and where they are needed a PUT of its status and one of its managedFields
	create, status, fields []byte
}

// restFor makes a plain client.
func (b *bench) restFor(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true // costs more than the request, on one machine
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{Version: "v1"},
		serializer.NewCodecFactory(b.client.Scheme())
	raw, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return raw, nil
}

// neededRequests reads the source and makes the requests that bring all of it to another management
// cluster. Namespaces are the first of both slices.
func (b *bench) neededRequests(ctx context.Context) (namespaces, others []needed, err error) {
	kinds, err := b.kinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	raw, err := b.restFor(b.config)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range kinds {
		body, err := raw.Get().AbsPath(k.path()).DoRaw(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("list %s: %w", k.Kind, err)
		}
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, nil, fmt.Errorf("decode list of %s: %w", k.Kind, err)
		}
		for _, o := range list.Items {
			metadata, _ := o["metadata"].(map[string]any)
			name, _ := metadata["name"].(string)
			namespace, _ := metadata["namespace"].(string)
			switch {
			case own(namespace), k.Kind == "Namespace" && own(name), k.Kind == "Provider":
				continue // of the management cluster itself
			}
			n, err := k.needed(o, metadata, namespace, name)
			if err != nil {
				return nil, nil, err
			}
			if k.Kind == "Namespace" {
				namespaces = append(namespaces, n)
			} else {
				others = append(others, n)
			}
		}
	}
	return namespaces, others, nil
}

func own(namespace string) bool {
	return namespace == "default" || strings.HasPrefix(namespace, "kube-")
}

func (k kind) needed(o, metadata map[string]any, namespace, name string) (n needed, err error) {
	n = needed{path: k.path(), name: name}
	if namespace != "" {
		n.path = strings.TrimSuffix(k.path(), k.resource) + "namespaces/" + namespace + "/" + k.resource
	}
	o["apiVersion"], o["kind"] = k.GroupVersion().String(), k.Kind
	fields, _ := metadata["managedFields"].([]any)
	for _, f := range []string{"uid", "resourceVersion", "generation", "creationTimestamp",
		"managedFields"} {
		delete(metadata, f)
	}
	status := o["status"]
	if k.status {
		delete(o, "status")
	}
	if n.create, err = json.Marshal(o); err != nil {
		return n, fmt.Errorf("encode %s: %w", name, err)
	}
	metadata["resourceVersion"] = resourceVersion
	if k.status && status != nil {
		o["status"] = status
		if n.status, err = json.Marshal(o); err != nil {
			return n, fmt.Errorf("encode %s: %w", name, err)
		}
		delete(o, "status")
	}
	applied := slices.ContainsFunc(fields, func(f any) bool {
		entry, _ := f.(map[string]any)
		return entry["operation"] == "Apply"
	})
	if applied {
		metadata["managedFields"] = fields
		if n.fields, err = json.Marshal(o); err != nil {
			return n, fmt.Errorf("encode %s: %w", name, err)
		}
	}
	return n, nil
}

// floor is the time of the needed requests alone, sent by a plain client.
type floor struct {
	objects, status, fields int64
	took                    time.Duration
}

func (f floor) rate() float64 { return float64(f.objects) / f.took.Seconds() }

// writeFloor measures how long an empty management cluster takes for the requests that bring
// everything of the source to it: without a plan, an order, a check, a journal.
func (b *bench) writeFloor(ctx context.Context) (f floor, err error) {
	namespaces, others, err := b.neededRequests(ctx)
	if err != nil {
		return f, err
	}
	m, err := b.lab.AddBare(ctx, "floor")
	if err != nil {
		return f, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", m.Kubeconfig())
	if err != nil {
		return f, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := b.restFor(config)
	if err != nil {
		return f, err
	}
	b.Progress(fmt.Sprintf("write %d objects for the floor", len(namespaces)+len(others)))
	begin := time.Now()
	for _, list := range [][]needed{namespaces, others} {
		if err := f.send(ctx, client, list); err != nil {
			return f, err
		}
	}
	f.took = time.Since(begin)
	return f, m.KillAll()
}

func (f *floor) send(ctx context.Context, client *rest.RESTClient, list []needed) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writes)
	for _, n := range list {
		g.Go(func() error {
			version, err := answered(client.Post().AbsPath(n.path).Body(n.create).DoRaw(ctx))
			if err != nil {
				return fmt.Errorf("create %s: %w", n.name, err)
			}
			atomic.AddInt64(&f.objects, 1)
			for _, put := range []struct {
				path  string
				body  []byte
				count *int64
			}{{"/status", n.status, &f.status}, {"", n.fields, &f.fields}} {
				if put.body == nil {
					continue
				}
				body := strings.Replace(string(put.body), resourceVersion, version, 1)
				if version, err = answered(client.Put().AbsPath(n.path + "/" + n.name + put.path).
					Body([]byte(body)).DoRaw(ctx)); err != nil {
					return fmt.Errorf("write %s%s: %w", n.name, put.path, err)
				}
				atomic.AddInt64(put.count, 1)
			}
			return nil
		})
	}
	return g.Wait()
}

// answered returns the resourceVersion in an answer.
func answered(body []byte, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	err = json.Unmarshal(body, &o)
	return o.Metadata.ResourceVersion, err
}
