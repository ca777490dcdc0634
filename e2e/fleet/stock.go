package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Names of the files in a folder of Shape.Templates.
const (
	classTemplate   = "clusterclass-in-memory.yaml"
	clusterTemplate = "cluster-template-in-memory.yaml"
)

// sharedObjects are the Namespace and the ClusterClass with its templates of a stock shape.
func (s Shape) sharedObjects(prefix string) ([]*unstructured.Unstructured, error) {
	namespace := s.Key(prefix).Namespace
	objects, err := readTemplate(filepath.Join(s.Templates, classTemplate), nil)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		o.SetNamespace(namespace)
	}
	return append([]*unstructured.Unstructured{
		object("v1", "Namespace", "", namespace, fields{})}, objects...), nil
}

// workloadObjects are the objects that the author of the workload cluster writes.
func (s Shape) workloadObjects(prefix string) ([]*unstructured.Unstructured, error) {
	if s.Templates == "" {
		objects := workload(s, prefix)
		if !s.ExternalEtcd {
			return objects, nil
		}
		secrets, err := externalEtcdSecrets(prefix+s.Namespace, s.Name)
		return append(objects, secrets...), err
	}
	workers := 0
	for _, pool := range s.Pools {
		workers += pool
	}
	key := s.Key(prefix)
	return readTemplate(filepath.Join(s.Templates, clusterTemplate), map[string]string{
		"NAMESPACE":                   key.Namespace,
		"CLUSTER_NAME":                key.Name,
		"KUBERNETES_VERSION":          workloadVersion,
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(s.ControlPlanes),
		"WORKER_MACHINE_COUNT":        strconv.Itoa(workers),
	})
}

// readTemplate reads the objects of a template file. It replaces variables as clusterctl does:
// ${NAME} and ${NAME:=default}.
func readTemplate(path string, variables map[string]string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	objects, err := parseTemplate(string(data), variables)
	if err != nil {
		return nil, fmt.Errorf("read template %s: %w", path, err)
	}
	return objects, nil
}

func parseTemplate(template string, variables map[string]string) ([]*unstructured.Unstructured,
	error) {
	var missing []string
	text := os.Expand(template, func(variable string) string {
		name, value, hasDefault := strings.Cut(variable, ":=")
		if set, ok := variables[name]; ok {
			return set
		}
		if !hasDefault {
			missing = append(missing, name)
		}
		return value
	})
	if len(missing) > 0 {
		return nil, fmt.Errorf("no value for %s", strings.Join(missing, ", "))
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}
