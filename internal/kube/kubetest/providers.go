package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/task"
)

const labelClusterctl = "clusterctl.cluster.x-k8s.io"

// gitOpsGroups are groups of kinds that never have the labels of clusterctl.
var gitOpsGroups = []string{"kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "argoproj.io"}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// ProviderCRDs reads the CRDs of providers that "make lab" collects, with the labels with which
// their installers leave them.
func ProviderCRDs() ([]*unstructured.Unstructured, error) {
	program, err := Lab()
	if err != nil {
		return nil, err
	}
	home := filepath.Dir(filepath.Dir(program))
	paths, err := filepath.Glob(filepath.Join(home, "crds-providers", "*", "*.json"))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(err, errors.New("find CRDs of providers: run make lab"))
	}
	all := make([]*unstructured.Unstructured, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all[i] = &unstructured.Unstructured{}
		if err := json.Unmarshal(text, &all[i].Object); err != nil {
			return nil, fmt.Errorf("read CRD %s: %w", path, err)
		}
	}
	return all, nil
}

// InstallProviders installs the CRDs of the kinds ("Kind.group") of providers on all servers, and
// waits until they are served.
func (s *Servers) InstallProviders(t testing.TB, kinds []string) {
	t.Helper()
	all, err := ProviderCRDs()
	if err != nil {
		t.Fatal(err)
	}
	var wanted []*unstructured.Unstructured
	for _, crd := range all {
		if slices.Contains(kinds, kindOf(crd)) {
			wanted = append(wanted, crd)
		}
	}
	var g task.Group
	g.SetLimit(4)
	for i := range s.n {
		client := s.dynamic(t, i)
		for _, crd := range wanted {
			g.Go(func() error {
				_, err := client.Resource(crds).Create(t.Context(), crd.DeepCopy(), metav1.CreateOptions{})
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal("install CRDs: ", err)
	}
	for i := range s.n {
		if err := s.awaitServed(t.Context(), s.dynamic(t, i), wanted); err != nil {
			t.Fatal(err)
		}
		if err := awaitDiscovered(t.Context(), s.Connect(t, i), kinds, true); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitDiscovered waits until discovery names all of kinds ("Kind.group"), or none of them.
func awaitDiscovered(ctx context.Context, m *kube.Mgmt, kinds []string, all bool) error {
	for {
		served, err := m.Reader().Kinds(ctx)
		if err != nil {
			return err
		}
		other := slices.IndexFunc(kinds, func(kind string) bool {
			return all != slices.ContainsFunc(served,
				func(k kube.Kind) bool { return k.GroupKind.String() == kind })
		})
		if other < 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("await %s in discovery: %w", kinds[other], ctx.Err())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// LabelProviders adds the label of clusterctl to all CRDs of the servers but those of GitOps tools,
// as users put it by hand on those of providers that clusterctl does not install. undo removes what
// it added.
func (s *Servers) LabelProviders(t testing.TB) (undo func()) {
	t.Helper()
	added := s.labelProviders(t, func(labels map[string]string) bool {
		_, has := labels[labelClusterctl]
		labels[labelClusterctl] = ""
		return !has
	}, nil)
	return func() {
		s.labelProviders(t, func(labels map[string]string) bool {
			delete(labels, labelClusterctl)
			return true
		}, added)
	}
}

// labelProviders changes the labels of CRDs, of those in only if that is not nil, and returns the
// names of those that changed.
func (s *Servers) labelProviders(t testing.TB, change func(map[string]string) bool,
	only map[string]bool) map[string]bool {
	t.Helper()
	changed := map[string]bool{}
	for i := range s.n {
		client := s.dynamic(t, i).Resource(crds)
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range list.Items {
			_, group, _ := strings.Cut(crd.GetName(), ".")
			labels := crd.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			if slices.Contains(gitOpsGroups, group) || only != nil && !only[crd.GetName()] ||
				!change(labels) {
				continue
			}
			crd.SetLabels(labels)
			changed[crd.GetName()] = true
			if _, err := client.Update(t.Context(), &crd, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return changed
}

// awaitServed waits until an object of each CRD can be listed: the condition Established comes some
// time before that.
func (s *Servers) awaitServed(ctx context.Context, client dynamic.Interface,
	wanted []*unstructured.Unstructured) error {
	for _, crd := range wanted {
		resource := resourceOf(crd)
		for {
			_, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
			if err == nil {
				break
			}
			if !apierrors.IsNotFound(err) && !kube.Transient(err) || ctx.Err() != nil {
				return fmt.Errorf("await %s: %w", crd.GetName(), err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func (s *Servers) dynamic(t testing.TB, i int) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Options(i).KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kindOf returns the kind that a CRD defines, as "Kind.group".
func kindOf(crd *unstructured.Unstructured) string {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return kind + "." + group
}

// resourceOf returns the resource of a CRD at its storage version.
func resourceOf(crd *unstructured.Unstructured) schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if storage, _ := version["storage"].(bool); storage {
			name, _ := version["name"].(string)
			return schema.GroupVersionResource{Group: group, Version: name, Resource: plural}
		}
	}
	return schema.GroupVersionResource{Group: group, Resource: plural}
}
