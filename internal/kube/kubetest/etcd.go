package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// etcdURL is the address of the JSON gateway to the etcd of server i, as the lab lays out its
// ports.
func (s *Servers) etcdURL(i int) (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Options(i).KubeconfigFile)
	if err != nil {
		return "", err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return "", err
	}
	port, err := strconv.Atoi(server.Port())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("http://%s:%d/v3/kv/", server.Hostname(), port+1), nil
}

// Compact makes the etcd of server i forget all that was before now. API servers do so every five
// minutes, and leave the last five. It returns the oldest resourceVersion that can still be read.
func (s *Servers) Compact(ctx context.Context, i int) (string, error) {
	etcd, err := s.etcdURL(i)
	if err != nil {
		return "", err
	}
	var newest struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := post(ctx, etcd+"range", map[string]any{"key": []byte{0}, "count_only": true},
		&newest); err != nil {
		return "", err
	}
	return newest.Header.Revision, post(ctx, etcd+"compaction",
		map[string]any{"revision": newest.Header.Revision, "physical": true}, &struct{}{})
}

// registry is where API servers store objects: by resource or group and resource, namespace, name.
const registry = "/registry/"

// Clear removes all custom resources from all servers, and all namespaces but those of Kubernetes
// itself with what is in them. It deletes the keys in etcd: finalizers and the namespace
// controller would take seconds. Call it at the start of a test that shares its servers with others
// and cannot be limited to namespaces of its own.
func (s *Servers) Clear(t testing.TB) {
	t.Helper()
	for i := range s.n {
		s.ClearServer(t, i)
	}
}

// ClearServer is Clear for one server.
func (s *Servers) ClearServer(t testing.TB, i int) {
	t.Helper()
	if err := s.clear(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

func (s *Servers) clear(ctx context.Context, i int) error {
	etcd, err := s.etcdURL(i)
	if err != nil {
		return err
	}
	versions, err := s.versions(ctx, i)
	if err != nil {
		return err
	}
	var namespaces []string
	for key := range versions {
		if name, ok := strings.CutPrefix(key, "namespaces/"); ok && name != "default" &&
			!strings.HasPrefix(name, "kube-") {
			namespaces = append(namespaces, name)
		}
	}
	for key := range versions {
		group, _, _ := strings.Cut(key, "/")
		// The groups of Kubernetes itself have no domain, or one of its own.
		custom := strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
		if !custom && !slices.ContainsFunc(namespaces,
			func(name string) bool { return isIn(key, name) }) {
			continue
		}
		if err := post(ctx, etcd+"deleterange", map[string]any{"key": []byte(registry + key)},
			&struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// Versions returns the resourceVersions of a namespace of server i and of all objects in it, as
// etcd has them: by resource, or group and resource, then namespace and name. It is one request; to
// list all kinds instead takes a hundred.
func (s *Servers) Versions(ctx context.Context, i int, namespace string) (map[string]string,
	error) {
	versions, err := s.versions(ctx, i)
	maps.DeleteFunc(versions, func(key, _ string) bool { return !isIn(key, namespace) })
	return versions, err
}

// isIn reports whether a key is that of a namespace or of an object in it.
func isIn(key, namespace string) bool {
	_, rest, _ := strings.Cut(key, "/")
	return slices.Contains(strings.Split(rest, "/"), namespace)
}

// versions returns the resourceVersions of all objects of server i by their keys below registry.
func (s *Servers) versions(ctx context.Context, i int) (map[string]string, error) {
	etcd, err := s.etcdURL(i)
	if err != nil {
		return nil, err
	}
	var found struct {
		KVs []struct {
			Key     []byte `json:"key"`
			Version string `json:"mod_revision"`
		} `json:"kvs"`
	}
	end := registry[:len(registry)-1] + "0" // the first key after all that begin with registry
	if err := post(ctx, etcd+"range", map[string]any{"key": []byte(registry),
		"range_end": []byte(end), "keys_only": true}, &found); err != nil {
		return nil, err
	}
	versions := make(map[string]string, len(found.KVs))
	for _, kv := range found.KVs {
		versions[strings.TrimPrefix(string(kv.Key), registry)] = kv.Version
	}
	return versions, nil
}

// post sends a request to the JSON gateway of etcd, and decodes the answer.
func post(ctx context.Context, address string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	sent, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(sent)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", address, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}
