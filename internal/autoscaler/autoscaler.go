// Package autoscaler finds cluster autoscalers that work on Cluster API, and the kubeconfigs with
// which they reach a management cluster. No pause of a Cluster stops such an autoscaler: it goes
// on to change the replicas of MachineDeployments (kubernetes/autoscaler 55c37cd5,
// cluster-autoscaler/cloudprovider/clusterapi). What it changed during a pause takes effect when
// the pause ends, on whichever management cluster that is.
//
// It reads, and changes nothing (I7).
package autoscaler

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// The flags of a cluster autoscaler (kubernetes/autoscaler 55c37cd5,
// cluster-autoscaler/config/flags/flags.go and cloudprovider/clusterapi/README.md).
const (
	provider  = "-cloud-provider"
	discovery = "clusterapi:"
)

// Autoscaler is a Deployment that runs a cluster autoscaler with the provider clusterapi.
type Autoscaler struct {
	object.Ref
	// InNamespace and Cluster are those of the workload cluster on which it works; empty for any.
	InNamespace, Cluster string
	// Secrets are those that it mounts, in its own namespace.
	Secrets []string
}

// Lister lists objects of a management cluster. It cannot write.
type Lister interface {
	List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func(raw []byte) error) (
		kube.ListResult, error)
}

// Find lists the Deployments of a management cluster and returns the autoscalers that run. One with
// zero replicas does not.
func Find(ctx context.Context, from Lister) (found []Autoscaler, err error) {
	_, err = from.List(ctx, kube.DeploymentKind, kube.ListOptions{}, func(raw []byte) error {
		if a, ok := read(raw); ok {
			found = append(found, a)
		}
		return nil
	})
	return found, err
}

// read reads a Deployment.
func read(raw []byte) (a Autoscaler, ok bool) {
	root := gjson.ParseBytes(raw)
	if r := root.Get("spec.replicas"); r.Exists() && r.Int() == 0 {
		return a, false
	}
	pod := root.Get("spec.template.spec")
	pod.Get("containers").ForEach(func(_, c gjson.Result) bool {
		words := append(c.Get("command").Array(), c.Get("args").Array()...)
		for i, word := range words {
			text := word.String()
			next := ""
			if i+1 < len(words) {
				next = words[i+1].String()
			}
			ok = ok || strings.Contains(text, provider+"=clusterapi") ||
				strings.HasSuffix(text, provider) && next == "clusterapi"
			a.discover(text)
		}
		return true
	})
	if !ok {
		return a, false
	}
	a.Ref = object.Ref{Group: kube.DeploymentKind.Group, Kind: kube.DeploymentKind.Kind,
		Namespace: strings.Clone(root.Get("metadata.namespace").String()),
		Name:      strings.Clone(root.Get("metadata.name").String())}
	pod.Get("volumes.#.secret.secretName").ForEach(func(_, name gjson.Result) bool {
		a.Secrets = append(a.Secrets, strings.Clone(name.String()))
		return true
	})
	return a, true
}

// discover reads on which workload cluster an autoscaler works, from a flag such as
// "--node-group-auto-discovery=clusterapi:namespace=N,clusterName=C".
func (a *Autoscaler) discover(flag string) {
	_, terms, ok := strings.Cut(flag, discovery)
	if !ok {
		return
	}
	for term := range strings.SplitSeq(terms, ",") {
		switch key, value, _ := strings.Cut(term, "="); key {
		case "namespace":
			a.InNamespace = strings.Clone(value)
		case "clusterName":
			a.Cluster = strings.Clone(value)
		}
	}
}

// WorksOn returns those of some units on which the autoscaler works.
func (a Autoscaler) WorksOn(units []string) []string {
	return slices.DeleteFunc(slices.Clone(units), func(unit string) bool {
		namespace, name, _ := strings.Cut(unit, "/")
		return a.InNamespace != "" && a.InNamespace != namespace || a.Cluster != "" && a.Cluster != name
	})
}

// Findings returns a warning for each autoscaler that works on units. side is "source" or "target".
// known reports the mounted Secrets with a kubeconfig of the source; nil where nobody asks.
func Findings(found []Autoscaler, units []string, side string,
	known func(namespace, name string) bool) (findings []object.Finding) {
	for _, a := range found {
		on := a.WorksOn(units)
		if len(on) == 0 {
			continue
		}
		f := object.Finding{Severity: object.Warning, Code: object.CodeAutoscaler, Ref: a.Ref,
			Unit: on[0], Users: on[1:],
			Message: fmt.Sprintf("the cluster autoscaler in it works on the Cluster API of the %s: a "+
				"pause does not stop it, and what it changes takes effect once the pause ends", side),
			Hint: fmt.Sprintf(scale, a.Namespace, a.Name)}
		for _, secret := range a.Secrets {
			if known != nil && known(a.Namespace, secret) {
				f.Message += "; it mounts Secret " + secret + ", which has a kubeconfig of the source"
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// Unread returns the finding for Deployments that cannot be listed.
func Unread(side string, err error) object.Finding {
	return object.Finding{Severity: object.Warning, Code: object.CodeAutoscaler,
		Message: fmt.Sprintf("the Deployments of the %s could not be listed, so nobody knows whether a "+
			"cluster autoscaler works on these workload clusters: %v", side,
			kube.SafeError(kube.DeploymentKind.GroupKind, err)),
		Hint: "grant list of deployments, or see that none runs"}
}

// InSecret returns the finding for a Secret of a unit with a kubeconfig of the source.
func InSecret(secret object.Ref, unit string) object.Finding {
	return object.Finding{Severity: object.Warning, Code: object.CodeAutoscaler, Ref: secret,
		Unit: unit, Message: "it has a kubeconfig of the source: what uses it, such as a cluster " +
			"autoscaler in a workload cluster, works on the source whenever that answers",
		Hint: "stop what uses it, and give it a kubeconfig of the target after the release"}
}

// HasKubeconfig reports whether a Secret has a kubeconfig of a management cluster: one with its
// server, or with a key of its CA. The kubeconfigs that Cluster API makes do not count: that of a
// management cluster which manages itself is one of them.
func HasKubeconfig(secret []byte, of *kube.API) (has bool) {
	if of == nil || gjson.GetBytes(secret, "type").String() == "cluster.x-k8s.io/secret" {
		return false
	}
	gjson.GetBytes(secret, "data").ForEach(func(_, v gjson.Result) bool {
		text, err := base64.StdEncoding.DecodeString(v.String())
		if err != nil || !strings.Contains(string(text), "clusters:") {
			return true
		}
		k, err := workload.Parse(text)
		has = err == nil && (k.Server() == of.Server || slices.ContainsFunc(k.CA(),
			func(id string) bool { return slices.Contains(of.CA, id) }))
		return !has
	})
	return has
}
