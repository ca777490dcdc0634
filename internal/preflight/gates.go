package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// FeatureGates are the feature gates that the controllers of a management cluster are started with,
// by provider and name. One that is not named there has the default of its version, which is not
// known: it differs between the versions of one provider.
type FeatureGates map[string]map[string]bool

// Lister lists objects of a management cluster. It cannot write.
type Lister interface {
	List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func(raw []byte) error) (
		kube.ListResult, error)
}

// labelProvider is on all that clusterctl, or the operator of Cluster API, installs of a provider
// (cluster-api v1.14, cmd/clusterctl/api/v1alpha3/labels.go).
const labelProvider = "cluster.x-k8s.io/provider"

// ReadFeatureGates reads the Deployments of the providers of a management cluster.
func ReadFeatureGates(ctx context.Context, from Lister) (FeatureGates, error) {
	found := FeatureGates{}
	_, err := from.List(ctx, kube.DeploymentKind, kube.ListOptions{Labels: labelProvider},
		func(raw []byte) error {
			found.read(strings.Clone(string(raw)))
			return nil
		})
	return found, err
}

// read adds what a Deployment sets. What two Deployments of one provider set to different values is
// not known.
func (g FeatureGates) read(deployment string) {
	provider := gjson.Get(deployment, "metadata.labels."+gjson.Escape(labelProvider)).String()
	if g[provider] == nil {
		g[provider] = map[string]bool{}
	}
	differ := map[string]bool{}
	gjson.Get(deployment, "spec.template.spec.containers").ForEach(func(_, c gjson.Result) bool {
		for name, on := range gatesOf(append(c.Get("command").Array(), c.Get("args").Array()...)) {
			if was, ok := g[provider][name]; ok && was != on {
				differ[name] = true
			}
			g[provider][name] = on
		}
		return true
	})
	maps.DeleteFunc(g[provider], func(name string, _ bool) bool { return differ[name] })
}

// gatesOf reads the flags --feature-gates=A=true,B=false of a command; a later value counts
// (k8s.io/component-base/featuregate).
func gatesOf(words []gjson.Result) map[string]bool {
	gates := map[string]bool{}
	for i, word := range words {
		flag, value, joined := strings.Cut(strings.TrimLeft(word.String(), "-"), "=")
		if flag != "feature-gates" {
			continue
		}
		if !joined && i+1 < len(words) {
			value = words[i+1].String()
		}
		for pair := range strings.SplitSeq(value, ",") {
			name, text, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if on, err := strconv.ParseBool(text); err == nil {
				gates[name] = on
			}
		}
	}
	return gates
}

// GateUse is what needs a feature gate of a provider.
type GateUse struct {
	Units []string // workload clusters, sorted
	Kinds []string // sorted
}

// CompareFeatureGates reports the feature gates that are on at the source and off at the target. It
// is an error for the workload clusters that use says need one. Providers that the target lacks are
// a check of their own.
func CompareFeatureGates(source, target FeatureGates,
	use func(provider, gate string) GateUse) []object.Finding {
	var findings []object.Finding
	for _, provider := range slices.Sorted(maps.Keys(source)) {
		there, ok := target[provider]
		if !ok {
			continue
		}
		var others []string
		for _, gate := range slices.Sorted(maps.Keys(source[provider])) {
			on, known := there[gate]
			if on || !source[provider][gate] {
				continue
			}
			used := use(provider, gate)
			switch {
			case len(used.Units) > 0:
				findings = append(findings, gateFinding(provider, gate, known, used))
			case known:
				others = append(others, gate)
			}
		}
		if len(others) > 0 {
			findings = append(findings, object.Finding{Severity: object.Warning,
				Code: object.CodeFeatureGate, Message: fmt.Sprintf("feature gates of provider %s are on at "+
					"the source and off at the target: %s. No kind in the plan shows whether it needs them",
					provider, strings.Join(others, ", ")),
				Hint: "compare the feature gates of both, and set what your workload clusters need"})
		}
	}
	return findings
}

// gateFinding is the finding about a gate that workload clusters need.
func gateFinding(provider, gate string, known bool, used GateUse) object.Finding {
	f := object.Finding{Severity: object.Error, Code: object.CodeFeatureGate,
		Unit: used.Units[0], Users: used.Units[1:],
		Message: fmt.Sprintf("feature gate %s of provider %s is on at the source and off at the target, "+
			"whose controllers would not work on %s", gate, provider, strings.Join(used.Kinds, ", ")),
		Hint: "turn it on in the Deployment of that provider on the target"}
	if !known {
		f.Severity = object.Info
		f.Message = fmt.Sprintf("feature gate %s of provider %s is on at the source; the target does "+
			"not set it, so that the default of its version counts, for %s", gate, provider,
			strings.Join(used.Kinds, ", "))
		f.Hint = "see that it is on by default in that version, or that the version has no such gate"
	}
	return f
}
