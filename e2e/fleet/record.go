package fleet

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A recording is a live workload cluster with everything in its namespace, as
// the controllers left it: one JSON object a line, owners before what they own.
// The names below occur nowhere else, so that replacing them as text gives
// another workload cluster. Private keys and certificates are left out, with
// a mark in their place.
const (
	recordedWorkload  = "zzworkload"
	recordedNamespace = "zznamespace-" // and the recording's name
	recordedPool      = "md-0"
	recordedHost      = "127.0.0.1"
	caHashMark        = "@ca-hash@"

	// Marks of machinepool.jsonl, which is written by hand: the in-memory back
	// end has no MachinePools to record.
	endpointMark   = "@endpoint@"
	clusterUIDMark = "@uid Cluster@"

	recordedControlPlanes = 3
	recordedWorkers       = 1
)

// pemMark stands for the PEM of one key of one certificate Secret, indented as the mark is.
func pemMark(secret, key string) string { return "@pem " + secret + " " + key + "@" }

// recordedKinds are all kinds that a workload cluster of the lab has.
func recordedKinds() map[string][]string {
	return map[string][]string{
		coreAPI: {"Cluster", "ClusterClass", "MachineDeployment", "MachineSet", "Machine",
			"MachineHealthCheck", "MachineDrainRule"},
		addonsAPI:       {"ClusterResourceSet", "ClusterResourceSetBinding"},
		bootstrapAPI:    {"KubeadmConfig", "KubeadmConfigTemplate"},
		controlPlaneAPI: {"KubeadmControlPlane", "KubeadmControlPlaneTemplate"},
		infraAPI:        {"DevCluster", "DevClusterTemplate", "DevMachine", "DevMachineTemplate"},
		"v1":            {"Secret", "ConfigMap"},
	}
}

// Record provisions one workload cluster with a class and one without, and
// writes them to dir, where CreateBare has them embedded. It is run by hand
// when the versions of Cluster API change, on a management cluster made for it.
func Record(ctx context.Context, c client.Client, dir string) error {
	for _, name := range []string{"plain", "classy"} {
		shape := Shape{
			Name: recordedWorkload, Namespace: recordedNamespace + name,
			ControlPlanes: recordedControlPlanes, Pools: []int{recordedWorkers}, HealthChecks: true,
			Addons: true,
		}
		if name == "classy" {
			shape.ClassNamespace = shape.Namespace
		}
		if _, err := Create(ctx, c, Options{Shapes: []Shape{shape}}); err != nil {
			return err
		}
		if err := quiesce(ctx); err != nil {
			return err
		}
		if err := recordWorkload(ctx, c, name, "v1beta2", dir); err != nil {
			return err
		}
	}
	return nil
}

// quiesce waits: controllers report Available before they have written the last conditions and
// counts.
func quiesce(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(45 * time.Second):
		return nil
	}
}

// recordWorkload writes the workload cluster of one recording, at a version of Cluster API's kinds.
func recordWorkload(ctx context.Context, c client.Client, name, version, dir string) error {
	objects, err := recordNamespace(ctx, c, recordedNamespace+name, version)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, o := range objects {
		if err := encoder.Encode(o.Object); err != nil {
			return fmt.Errorf("marshal %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	out := caHash.ReplaceAllString(lines.String(), caHashMark)
	if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(out), 0o644); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

func recordNamespace(ctx context.Context, c client.Client, namespace, version string) (
	[]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for api, kinds := range recordedKinds() {
		api = strings.Replace(api, "v1beta2", version, 1)
		for _, kind := range kinds {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(api)
			list.SetKind(kind + "List")
			if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return nil, fmt.Errorf("list %s: %w", kind, err)
			}
			for i := range list.Items {
				if list.Items[i].GetName() != "kube-root-ca.crt" {
					objects = append(objects, &list.Items[i])
				}
			}
		}
	}
	if err := redact(objects); err != nil {
		return nil, err
	}
	return ownersFirst(objects), nil
}

// ownersFirst sorts by depth of ownership, then kind and age, so that a second
// recording differs from the first only where it must.
func ownersFirst(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	byUID := map[types.UID]*unstructured.Unstructured{}
	for _, o := range objects {
		byUID[o.GetUID()] = o
	}
	var depth func(o *unstructured.Unstructured) int
	depth = func(o *unstructured.Unstructured) int {
		d := 0
		for _, owner := range o.GetOwnerReferences() {
			if above := byUID[owner.UID]; above != nil {
				d = max(d, 1+depth(above))
			}
		}
		return d
	}
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int {
		if d := depth(a) - depth(b); d != 0 {
			return d
		}
		if d := strings.Compare(a.GetKind(), b.GetKind()); d != 0 {
			return d
		}
		if d := a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time); d != 0 {
			return d
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	return objects
}

var (
	pemBlock = regexp.MustCompile(
		`(?m)^([ \t]*)-----BEGIN [A-Z ]+-----\n(?:[ \t]*[A-Za-z0-9+/=]+\n)+[ \t]*-----END [A-Z ]+-----`)
	caHash = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
)

// redact takes keys and certificates out of the Secrets, and leaves marks
// where they are in bootstrap data.
func redact(objects []*unstructured.Unstructured) error {
	marks := map[string]string{} // PEM without indentation → mark
	for _, o := range objects {
		if role, ok := certificateRole(o); ok {
			for key, text := range secretText(o) {
				marks[strings.TrimSpace(text)] = pemMark(role, key)
			}
			delete(o.Object, "data")
		}
	}
	var unknown error
	for _, o := range objects {
		if o.GetKind() != "Secret" || o.Object["data"] == nil {
			continue
		}
		texts := fields{}
		for key, text := range secretText(o) {
			text = pemBlock.ReplaceAllStringFunc(text, func(block string) string {
				indent := pemBlock.FindStringSubmatch(block)[1]
				mark := marks[strings.ReplaceAll(block, "\n"+indent, "\n")[len(indent):]]
				if mark == "" {
					unknown = fmt.Errorf("record Secret %s: it has a PEM block of unknown origin", o.GetName())
				}
				return indent + mark
			})
			texts[key] = text
		}
		delete(o.Object, "data")
		o.Object["stringData"] = texts
	}
	return unknown
}

// certificateRole is the suffix of a Secret that holds keys of a workload cluster.
func certificateRole(o *unstructured.Unstructured) (string, bool) {
	role, ok := strings.CutPrefix(o.GetName(), recordedWorkload+"-")
	return role, ok && o.GetKind() == "Secret" &&
		slices.Contains([]string{"ca", "etcd", "proxy", "sa", "kubeconfig"}, role)
}

func secretText(o *unstructured.Unstructured) map[string]string {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	texts := map[string]string{}
	for key, value := range data {
		text, err := base64.StdEncoding.DecodeString(value)
		if err == nil {
			texts[key] = string(text)
		}
	}
	return texts
}
