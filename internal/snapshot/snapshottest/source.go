// Package snapshottest has a source in memory, for tests of what becomes of snapshots once they
// exist. What a real API server answers is not tested with it, but by the API tests of package
// snapshot.
package snapshottest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// SecretText is in every Secret of a source: it must never be seen where no identity is.
const SecretText = "c2VjcmV0LW9mLXRoZS1mbGVldA" //nolint:gosec // G101: tests search for it

// versions is how many resourceVersions a source can still be read at.
const versions = 32

var (
	infraKind   = object.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachine"}
	configKind  = object.GroupKind{Group: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig"}
	sourceKinds = []kube.Kind{
		{GroupKind: configKind, Version: "v1beta2", Resource: "kubeadmconfigs", Namespaced: true,
			Served: []string{"v1beta2"}, Contract: true},
		{GroupKind: capi.Cluster, Version: "v1beta2", Resource: "clusters", Namespaced: true,
			Served: []string{"v1beta2"}, Contract: true},
		{GroupKind: capi.Machine, Version: "v1beta2", Resource: "machines", Namespaced: true,
			Served: []string{"v1beta2"}, Contract: true},
		kube.ConfigMapKind, kube.NamespaceKind, kube.SecretKind,
		{GroupKind: infraKind, Version: "v1beta2", Resource: "devmachines", Namespaced: true,
			Served: []string{"v1beta2"}, Contract: true},
	}
)

// Source is the objects of a management cluster, as of each of its last resourceVersions. All
// methods may be called concurrently.
type Source struct {
	UID, Name string

	mu      sync.Mutex
	rand    *rand.Rand
	version int64
	views   map[int64]map[object.Ref][]byte // each is never changed
}

var _ capture.Source = (*Source)(nil)

// New makes a source with so many workload clusters, two a namespace, with two Machines each. The
// seed decides on the bytes of all objects and on what Change does.
func New(name string, seed uint64, workloads int) *Source {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // G404: a test has to be repeatable
	s := &Source{UID: fmt.Sprintf("6f1b2c3d-0000-4000-8000-%012x", seed), Name: name, rand: random,
		views: map[int64]map[object.Ref][]byte{0: {}}}
	s.write(func(objects map[object.Ref][]byte) {
		for i := range workloads {
			s.workload(objects, fmt.Sprintf("team-%d", i/2), fmt.Sprintf("w-%d", i))
		}
	})
	return s
}

// write makes the next resourceVersion.
func (s *Source) write(change func(objects map[object.Ref][]byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := maps.Clone(s.views[s.version])
	s.version++
	change(objects)
	s.views[s.version] = objects
	delete(s.views, s.version-versions)
}

// PutMachine makes an infrastructure Machine that so many times names a Cluster as its owner.
func (s *Source) PutMachine(namespace, name, cluster string, owners int) {
	s.write(func(objects map[object.Ref][]byte) {
		owner := fmt.Sprintf(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":%q,"uid":"u"}`,
			cluster)
		s.put(objects, infraKind, namespace, name, fmt.Sprintf(
			`,"labels":{"cluster.x-k8s.io/cluster-name":%q},"ownerReferences":[%s]`, cluster,
			strings.Join(slices.Repeat([]string{owner}, owners), ",")), `"spec":{}`)
	})
}

// PutConfigMap makes a ConfigMap of a workload cluster with a text of so many bytes.
func (s *Source) PutConfigMap(namespace, name, cluster string, size int) {
	s.write(func(objects map[object.Ref][]byte) {
		s.put(objects, kube.ConfigMapKind.GroupKind, namespace, name, fmt.Sprintf(
			`,"labels":{"cluster.x-k8s.io/cluster-name":%q}`, cluster),
			`"data":{"text":"`+s.text(size)+`"}`)
	})
}

// Label gives a Cluster these labels and no others. It does nothing when there is no such Cluster.
func (s *Source) Label(namespace, name string, labels map[string]string) {
	s.write(func(objects map[object.Ref][]byte) {
		ref := cluster(namespace, name)
		was := gjson.ParseBytes(objects[ref])
		if !was.Exists() {
			return
		}
		text, _ := json.Marshal(labels) // of texts: never fails
		objects[ref] = []byte(fmt.Sprintf(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster",`+
			`"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":%s},"spec":%s}`,
			name, namespace, was.Get("metadata.uid").String(), s.version, text, was.Get("spec").Raw))
	})
}

func cluster(namespace, name string) object.Ref {
	return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: namespace,
		Name: name}
}

// PutShared makes an infrastructure Machine that these Clusters own, and for each of them a Machine
// that names it and a Secret. Clusters that do not exist are left out.
func (s *Source) PutShared(namespace, name string, clusters ...string) {
	s.write(func(objects map[object.Ref][]byte) {
		s.put(objects, kube.SecretKind.GroupKind, namespace, name, "", s.secret())
		var owners []string
		for _, c := range clusters {
			uid := gjson.GetBytes(objects[cluster(namespace, c)], "metadata.uid").String()
			if uid == "" {
				continue
			}
			owner := fmt.Sprintf(
				`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":%q,"uid":%q}`, c, uid)
			owners = append(owners, owner)
			s.put(objects, capi.Machine, namespace, name+"-of-"+c, fmt.Sprintf(
				`,"labels":{"cluster.x-k8s.io/cluster-name":%q},"ownerReferences":[%s]`, c, owner),
				fmt.Sprintf(`"spec":{"clusterName":%q,"bootstrap":{"dataSecretName":%q},"infrastructureRef":{"apiGroup":%q,"kind":%q,"name":%q}}`,
					c, name, infraKind.Group, infraKind.Kind, name))
		}
		s.put(objects, infraKind, namespace, name, `,"ownerReferences":[`+strings.Join(owners, ",")+`]`,
			`"spec":{}`)
	})
}

func (s *Source) put(objects map[object.Ref][]byte, gk object.GroupKind, namespace, name, more,
	spec string) string {
	k, _ := kube.FindKind(sourceKinds, gk)
	uid := fmt.Sprintf("%08x-0000-4000-9000-%012x", s.version, s.rand.Uint64()>>16)
	meta := fmt.Sprintf(`"name":%q,"uid":%q,"resourceVersion":"%d"`, name, uid, s.version)
	if namespace != "" {
		meta += fmt.Sprintf(`,"namespace":%q`, namespace)
	}
	ref := object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: namespace, Name: name}
	objects[ref] = []byte(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{%s%s},%s}`,
		k.APIVersion(), gk.Kind, meta, more, spec))
	return uid
}

// workload makes a workload cluster and what it needs.
func (s *Source) workload(objects map[object.Ref][]byte, namespace, name string) {
	s.put(objects, kube.NamespaceKind.GroupKind, "", namespace, "", `"spec":{}`)
	owner := s.put(objects, capi.Cluster, namespace, name, `,"labels":{"team":"`+namespace+
		`"}`, `"spec":{"paused":false}`)
	owned := fmt.Sprintf(
		`,"labels":{"cluster.x-k8s.io/cluster-name":%q},"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":%q,"uid":%q}]`, name, name, owner)
	s.put(objects, kube.SecretKind.GroupKind, namespace, name+"-ca", owned, s.secret())
	s.put(objects, kube.ConfigMapKind.GroupKind, namespace, name+"-values", owned, `"data":{"text":"`+
		s.text(200)+`"}`)
	for i := range 2 {
		m := name + "-" + strconv.Itoa(i)
		s.put(objects, configKind, namespace, m, owned, `"spec":{},"status":{"dataSecretName":"`+m+`"}`)
		s.put(objects, infraKind, namespace, m, owned, `"spec":{"text":"`+s.text(300)+`"}`)
		s.put(objects, kube.SecretKind.GroupKind, namespace, m, owned, s.secret())
		s.put(objects, capi.Machine, namespace, m, owned, fmt.Sprintf(`"spec":{"clusterName":%q,"bootstrap":{"dataSecretName":%q,"configRef":{"apiGroup":%q,"kind":%q,"name":%q}},
			"infrastructureRef":{"apiGroup":%q,"kind":%q,"name":%q}}`, name, m, configKind.Group, configKind.Kind, m, infraKind.Group, infraKind.Kind, m))
	}
}

func (s *Source) secret() string {
	return `"type":"Opaque","data":{"key":"` + SecretText + s.text(400) + `"}`
}

// text cannot be compressed to less than half.
func (s *Source) text(n int) string {
	b := make([]byte, n/2)
	for i := range b {
		b[i] = byte(s.rand.Uint64())
	}
	return hex.EncodeToString(b)
}

// Change writes to some objects and now and then makes or deletes a workload cluster.
func (s *Source) Change() {
	s.write(func(objects map[object.Ref][]byte) {
		refs := slices.SortedFunc(maps.Keys(objects), object.CompareRefs)
		for range 1 + s.rand.IntN(3) {
			ref := refs[s.rand.IntN(len(refs))]
			body := string(objects[ref])
			head, rest, _ := strings.Cut(body, `"resourceVersion":"`)
			_, rest, _ = strings.Cut(rest, `"`)
			body = head + `"resourceVersion":"` + strconv.FormatInt(s.version, 10) + `"` + rest
			objects[ref] = []byte(body[:len(body)-1] + `,"status":{"text":"` + s.text(40) + `"}}`)
			if i := strings.Index(body, `,"status":`); i > 0 {
				objects[ref] = []byte(body[:i] + `,"status":{"text":"` + s.text(40) + `"}}`)
			}
		}
		switch n := s.rand.IntN(20); {
		case n == 0:
			s.workload(objects, fmt.Sprintf("team-%d", s.rand.IntN(4)), fmt.Sprintf("w-%d", s.rand.IntN(40)))
		case n == 1 && len(refs) > 100:
			gone := fmt.Sprintf("w-%d", s.rand.IntN(40))
			maps.DeleteFunc(objects, func(r object.Ref, _ []byte) bool {
				return r.Name == gone ||
					strings.HasPrefix(r.Name, gone+"-")
			})
		}
	})
}

// At gives the objects as of a resourceVersion; they must not be changed.
func (s *Source) At(resourceVersion string) (map[object.Ref][]byte, bool) {
	v, err := strconv.ParseInt(resourceVersion, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, ok := s.views[v]
	return objects, ok && err == nil
}

// Kinds implements capture.Source.
func (s *Source) Kinds(ctx context.Context) ([]kube.Kind, error) { return sourceKinds, ctx.Err() }

// List implements capture.Source. A version that is too old is kube.ErrExpired.
func (s *Source) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	s.mu.Lock()
	version := strconv.FormatInt(s.version, 10)
	s.mu.Unlock()
	if o.Exact != "" {
		version = o.Exact
	}
	objects, ok := s.At(version)
	if !ok {
		return kube.ListResult{}, fmt.Errorf("list %s: %w", k.GroupKind, kube.ErrExpired)
	}
	result := kube.ListResult{ResourceVersion: version}
	for _, ref := range slices.SortedFunc(maps.Keys(objects), object.CompareRefs) {
		if ref.GroupKind() != k.GroupKind || o.Namespace != "" && ref.Namespace != o.Namespace ||
			o.Name != "" && ref.Name != o.Name {
			continue
		}
		if err := ctx.Err(); err != nil {
			return kube.ListResult{}, err
		}
		if err := fn(slices.Clone(objects[ref])); err != nil {
			return kube.ListResult{}, err
		}
		if result.Items++; result.Items == o.Limit {
			break
		}
	}
	return result, nil
}

// Changes implements capture.Source. A version that is too old is kube.ErrExpired.
func (s *Source) Changes(ctx context.Context, k kube.Kind, from, to string,
	fn func(deleted bool, raw []byte) error) error {
	was, there := s.At(from)
	is, ok := s.At(to)
	if !there || !ok {
		return fmt.Errorf("watch %s: %w", k.GroupKind, kube.ErrExpired)
	}
	for ref, raw := range was {
		if now, ok := is[ref]; ref.GroupKind() == k.GroupKind && (!ok || !bytes.Equal(raw, now)) {
			if now == nil {
				now = raw
			}
			if err := fn(!ok, slices.Clone(now)); err != nil {
				return err
			}
		}
	}
	for ref, raw := range is {
		if was[ref] == nil && ref.GroupKind() == k.GroupKind {
			if err := fn(false, slices.Clone(raw)); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// Options are what snapshot.Create needs to take a snapshot of s into st.
func (s *Source) Options(st *store.Store) snapshot.Options {
	return snapshot.Options{
		Source: s, SourceName: s.Name, SourceUID: s.UID, Kubernetes: "v1.36.3", Store: st, Writer: "test",
		Providers: func(context.Context, []kube.Kind) ([]kube.Provider, error) { return nil, nil },
	}
}
