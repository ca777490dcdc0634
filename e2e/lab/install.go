package lab

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// install creates what `clusterctl init` would leave on the management
// cluster, but for the Deployments, whose place the lab's processes take.
func (m *Mgmt) install(ctx context.Context) error {
	config, err := m.RESTConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := m.installCRDs(ctx, c); err != nil {
		return err
	}
	if m.bare {
		return nil
	}
	for i, p := range m.release.providers {
		namespace := object("v1", "Namespace", "", p.namespace, p.clusterctlLabels())
		namespace.SetLabels(withLabel(p.clusterctlLabels(), "control-plane", "controller-manager"))
		hooks, err := readObjects(filepath.Join(m.lab.home.webhooks(m.release), p.label+".yaml"))
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			if err := m.pointHere(hook, m.webhookPort(i)); err != nil {
				return err
			}
		}
		inventory := p.inventory(m.release.version)
		for _, o := range append([]*unstructured.Unstructured{namespace, inventory}, hooks...) {
			if err := c.Create(ctx, o); err != nil {
				return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

// inventory is the object that clusterctl creates for a provider.
func (p provider) inventory(version string) *unstructured.Unstructured {
	o := object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", p.namespace, p.label,
		withLabel(p.clusterctlLabels(), "clusterctl.cluster.x-k8s.io/core", "inventory"))
	o.Object["providerName"] = p.name
	o.Object["type"] = p.kind
	o.Object["version"] = version
	return o
}

func (m *Mgmt) installCRDs(ctx context.Context, c client.Client) error {
	dir := m.lab.home.crds(m.release)
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("find CRDs in %s: run `lab build` first", dir)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, path := range paths {
		crds, err := readObjects(path)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			if !m.bare {
				m.convertHere(crd)
			}
			group.Go(func() error {
				return createCRD(groupCtx, c, crd)
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return m.waitCRDs(ctx, c)
}

// waitCRDs waits until all CRDs of the management cluster are served.
func (m *Mgmt) waitCRDs(ctx context.Context, c client.Client) error {
	return m.apiServer.wait(ctx, "the CRDs", func(ctx context.Context) error {
		return established(ctx, c)
	})
}

// createCRD retries when the API server of a busy machine timed out, whether it has created the CRD
// or not.
func createCRD(ctx context.Context, c client.Client, crd *unstructured.Unstructured) error {
	for {
		err := c.Create(ctx, crd.DeepCopy())
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if ctx.Err() != nil || !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) &&
			!apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("create CRD %s: %w", crd.GetName(), err)
		}
	}
}

func established(ctx context.Context, c client.Client) error {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apiextensions.k8s.io/v1")
	list.SetKind("CustomResourceDefinitionList")
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("list CRDs: %w", err)
	}
	got := 0
	for _, crd := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, condition := range conditions {
			if c, ok := condition.(map[string]any); ok && c["type"] == "Established" &&
				c["status"] == "True" {
				got++
			}
		}
	}
	if got < len(list.Items) {
		return fmt.Errorf("%d of %d CRDs are established", got, len(list.Items))
	}
	return nil
}

// convertHere makes the webhook of a provider the conversion webhook of a CRD with several
// versions.
func (m *Mgmt) convertHere(crd *unstructured.Unstructured) {
	for i, p := range m.release.providers {
		if crd.GetLabels()[providerLabel] == p.label {
			m.convertAt(crd, m.webhookPort(i))
		}
	}
}

// convertAt makes a process of the lab the conversion webhook of a CRD with several versions.
func (m *Mgmt) convertAt(crd *unstructured.Unstructured, port int) {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if len(versions) < 2 {
		return
	}
	_ = unstructured.SetNestedMap(crd.Object, map[string]any{
		"strategy": "Webhook",
		"webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"},
			"clientConfig":             m.clientConfig(port, "/convert"),
		},
	}, "spec", "conversion")
}

// pointHere makes a published webhook configuration call a process of the lab
// in place of a Service.
func (m *Mgmt) pointHere(configuration *unstructured.Unstructured, port int) error {
	hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("read %s: %w", configuration.GetName(), err)
	}
	for _, hook := range hooks {
		hook := hook.(map[string]any)
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return fmt.Errorf("read %s: %w", configuration.GetName(), err)
		}
		hook["clientConfig"] = m.clientConfig(port, path)
	}
	return unstructured.SetNestedSlice(configuration.Object, hooks, "webhooks")
}

func (m *Mgmt) clientConfig(port int, path string) map[string]any {
	return map[string]any{
		"url":      fmt.Sprintf("https://127.0.0.1:%d%s", port, path),
		"caBundle": base64.StdEncoding.EncodeToString(m.pki.caPEM()),
	}
}

// waitWebhooks dry-runs the creation of an object for each provider until its webhooks answer. The
// answer itself does not matter.
func (m *Mgmt) waitWebhooks(ctx context.Context) error {
	config, err := m.RESTConfig()
	if err != nil {
		return err
	}
	config.Timeout = 5 * time.Second
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, p := range m.release.probes {
		probe := object(p.group+"/"+m.release.api, p.kind, "default", "probe", nil)
		probe.Object["spec"] = map[string]any{}
		if err := m.apiServer.wait(ctx, "the webhooks of "+probe.GetKind(),
			func(ctx context.Context) error {
				err := c.Create(ctx, probe.DeepCopy(), client.DryRunAll)
				if err == nil || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
					return nil
				}
				return err
			}); err != nil {
			return err
		}
	}
	return nil
}

// waitGarbageCollector waits until the garbage collector watches all kinds. Before that it deletes
// no dependants, and a test would wait for that in vain.
func (m *Mgmt) waitGarbageCollector(ctx context.Context) error {
	process := m.controllers[0]
	return process.wait(ctx, "the garbage collector", func(context.Context) error {
		data, err := os.ReadFile(process.log)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		// A restart appends to the log: only the lines after the last start count.
		if i := bytes.LastIndex(data, []byte("### ")); i >= 0 {
			data = data[i:]
		}
		if !bytes.Contains(data, []byte("all resource monitors have synced")) {
			return fmt.Errorf("its monitors have not synced")
		}
		return nil
	})
}

func object(apiVersion, kind, namespace, name string,
	labels map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(labels)
	return o
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	labels[key] = value
	return labels
}
