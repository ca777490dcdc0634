package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload is what another cloud needs to continue a workload cluster: package control of the lab
// has the same type.
type workload struct {
	Port    int               `json:"port"`
	CA      keyPair           `json:"ca"`
	EtcdCA  keyPair           `json:"etcdCA"`
	Objects []json.RawMessage `json:"objects"`
}

type keyPair struct {
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
}

// inventory is what this cloud runs.
type inventory struct {
	mgmt       client.Client
	machines   inmemoryruntime.Manager
	apiServers *inmemoryserver.WorkloadClustersMux
	handOvers  sync.Mutex
}

// serve serves the hand-over of workload clusters until ctx ends.
func (i *inventory) serve(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("DELETE /workload/{namespace}/{name}", func(w http.ResponseWriter,
		r *http.Request) {
		given, err := i.handOver(r.Context(), types.NamespacedName{Namespace: r.PathValue("namespace"),
			Name: r.PathValue("name")})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(given) // the caller gets an incomplete document
	})
	srv := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve hand-overs: %w", err)
	}
	return nil
}

// handOver removes a workload cluster from this cloud without deleting it, and returns it. Its
// Cluster must be paused: the controllers would create all of it again.
func (i *inventory) handOver(ctx context.Context, key types.NamespacedName) (*workload, error) {
	i.handOvers.Lock()
	defer i.handOvers.Unlock()
	cluster := &clusterv1.Cluster{}
	if err := i.mgmt.Get(ctx, key, cluster); err != nil {
		return nil, err
	}
	if !cluster.Spec.Paused {
		return nil, fmt.Errorf("%s is not paused", key)
	}
	name := key.String()
	if _, ok := i.apiServers.ListListeners()[name]; !ok {
		return nil, fmt.Errorf("%s is not here", key)
	}
	listener, err := i.apiServers.InitWorkloadClusterListener(name) // returns the one there is
	if err != nil {
		return nil, err
	}
	given := &workload{Port: listener.Port()}
	if given.CA, err = i.authority(ctx, key, secret.ClusterCA); err != nil {
		return nil, err
	}
	if given.EtcdCA, err = i.authority(ctx, key, secret.EtcdCA); err != nil {
		return nil, err
	}
	if given.Objects, err = i.objects(ctx, name); err != nil {
		return nil, err
	}
	if err := i.apiServers.DeleteWorkloadClusterListener(name); err != nil {
		return nil, err
	}
	i.machines.DeleteResourceGroup(name)
	return given, nil
}

func (i *inventory) authority(ctx context.Context, key types.NamespacedName,
	purpose secret.Purpose) (keyPair, error) {
	s, err := secret.Get(ctx, i.mgmt, key, purpose)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{s.Data[secret.TLSCrtDataName], s.Data[secret.TLSKeyDataName]}, nil
}

// objects returns what the cloud has of a workload cluster: its virtual machines, and the objects
// of its API server.
func (i *inventory) objects(ctx context.Context, group string) ([]json.RawMessage, error) {
	var objects []json.RawMessage
	for gvk := range i.machines.GetScheme().AllKnownTypes() {
		if gvk.Kind == "List" || !strings.HasSuffix(gvk.Kind, "List") {
			continue
		}
		// The cloud has objects that clients patched as unstructured, and lists no others as typed.
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		if err := i.machines.GetResourceGroup(group).GetClient().List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %s of %s: %w", gvk, group, err)
		}
		for k := range list.Items {
			body, err := list.Items[k].MarshalJSON()
			if err != nil {
				return nil, fmt.Errorf("read %s of %s: %w", gvk, group, err)
			}
			objects = append(objects, body)
		}
	}
	return objects, nil
}
