package preflight

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// deployments are the Deployments of a management cluster, as the API server sends them.
type deployments []string

func (d deployments) List(_ context.Context, _ kube.Kind, _ kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	for _, text := range d {
		if err := fn([]byte(text)); err != nil {
			return kube.ListResult{}, err
		}
	}
	return kube.ListResult{}, nil
}

// deployment is a Deployment of a provider whose containers each have one command.
func deployment(provider string, commands ...string) string {
	var containers []string
	for _, command := range commands {
		containers = append(containers, fmt.Sprintf(`{"command":["/manager"],"args":["%s"]}`,
			strings.ReplaceAll(command, " ", `","`)))
	}
	return fmt.Sprintf(`{"metadata":{"labels":{"cluster.x-k8s.io/provider":%q}},
		"spec":{"template":{"spec":{"containers":[%s]}}}}`, provider, strings.Join(containers, ","))
}

func TestFeatureGatesAreReadFromTheFlagsOfDeployments(t *testing.T) {
	for name, tt := range map[string]struct {
		of   deployments
		want FeatureGates
	}{
		"none":    {nil, FeatureGates{}},
		"no flag": {deployments{deployment("a", "--v=2")}, FeatureGates{"a": {}}},
		"two gates": {deployments{deployment("a", "--leader-elect --feature-gates=A=true,B=false")},
			FeatureGates{"a": {"A": true, "B": false}}},
		"two words, one dash, and a second flag": {
			deployments{deployment("a", "-feature-gates A=true --feature-gates=A=false,B=true")},
			FeatureGates{"a": {"A": false, "B": true}}},
		"a variable that nobody replaced": {
			deployments{deployment("a", "--feature-gates=A=${EXP_A:=false},B=true")},
			FeatureGates{"a": {"B": true}}},
		"two containers, two providers": {deployments{deployment("a", "--x", "--feature-gates=A=true"),
			deployment("b", "--feature-gates=A=false")},
			FeatureGates{"a": {"A": true}, "b": {"A": false}}},
		"two Deployments that differ": {deployments{deployment("a", "--feature-gates=A=true,B=true"),
			deployment("a", "--feature-gates=A=false,B=true")}, FeatureGates{"a": {"B": true}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadFeatureGates(t.Context(), tt.of)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestFeatureGatesAreComparedByWhatTheTargetSets(t *testing.T) {
	use := func(provider, gate string) GateUse {
		if provider == "a" && gate == "Used" {
			return GateUse{Units: []string{"n/v", "n/w"}, Kinds: []string{"Pool"}}
		}
		return GateUse{}
	}
	used := func(severity object.Severity) []object.Finding {
		return []object.Finding{{Severity: severity, Code: object.CodeFeatureGate, Unit: "n/v",
			Users: []string{"n/w"}}}
	}
	source := FeatureGates{"a": {"Used": true, "Other": true, "Off": false}}
	for name, tt := range map[string]struct {
		target FeatureGates
		want   []object.Finding
	}{
		"the provider is not there": {FeatureGates{"b": {"Used": false}}, nil},
		"all on":                    {FeatureGates{"a": {"Used": true, "Other": true, "Off": true}}, nil},
		"the used one off":          {FeatureGates{"a": {"Used": false, "Other": true}}, used(object.Error)},
		"the used one not set":      {FeatureGates{"a": {"Other": true}}, used(object.Info)},
		"the other one off": {FeatureGates{"a": {"Used": true, "Other": false}},
			[]object.Finding{{Severity: object.Warning, Code: object.CodeFeatureGate}}},
		"the other one not set": {FeatureGates{"a": {"Used": true}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := CompareFeatureGates(source, tt.target, use)
			for i := range got {
				if got[i].Message == "" || got[i].Hint == "" {
					t.Errorf("no message, or no hint: %+v", got[i])
				}
				got[i].Message, got[i].Hint = "", ""
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
