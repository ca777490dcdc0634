package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// publishPause is what a controller does that has seen the pause of an object.
func publishPause(u *unstructured.Unstructured) {
	status, _ := u.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	status["conditions"] = []any{map[string]any{"type": "Paused", "status": "True",
		"observedGeneration": int64(1)}}
	u.Object["status"] = status
}

// TestAcknowledgementsAreThoseOfTheTarget: the source is older than the condition Paused, and the
// controllers of the target publish it: after a while, on a copy and on other objects there. No
// workload cluster is released before its own objects show it.
func TestAcknowledgementsAreThoseOfTheTarget(t *testing.T) {
	for _, name := range []string{"another object of the kind shows it", "the copy shows it"} {
		t.Run(name, func(t *testing.T) {
			target := newMemory(t, "target")
			copied := name == "the copy shows it"
			if !copied {
				other := newMemory(t, "other", `{"kind":"Cluster","metadata":{"namespace":"other",
					"name":"live"}}`)
				for ref, u := range other.objects {
					publishPause(u)
					target.objects[ref] = u
				}
			}
			x := newTrial(t, twoTenants(t), target)
			if copied { // that of the first unit in time, that of the second one later
				target.onCreate = func(u *unstructured.Unstructured) {
					if u.GetKind() == "Cluster" && u.GetNamespace() == "one" {
						publishPause(u)
					}
				}
			}
			reads := map[object.Ref]int{}
			target.onGet = func(ref object.Ref) {
				if ref.GroupKind() != capi.Cluster {
					return
				}
				target.mu.Lock()
				defer target.mu.Unlock()
				if reads[ref]++; reads[ref] == 5 && target.objects[ref] != nil {
					publishPause(target.objects[ref])
				}
			}
			errEarly := errors.New("released before its Cluster acknowledged the pause")
			x.tuning.Concurrency = 1
			x.hooks.BeforeRelease = func(_ context.Context, u Unit) error {
				target.mu.Lock()
				defer target.mu.Unlock()
				for ref, live := range target.objects {
					if ref.GroupKind() == capi.Cluster && ref.Namespace+"/"+ref.Name == u.Name &&
						capi.NotAcknowledged(live.Object, "True") != "" {
						return errEarly
					}
				}
				return nil
			}
			failures, err := x.run(t)
			if len(failures) > 0 || err != nil {
				t.Errorf("%v: %q", err, failures)
			}
		})
	}
}

// TestAKindThatIsPublishedLaterIsAwaited: the target was empty, and its controllers come to the
// first copy of a kind when the run has looked for the condition already.
func TestAKindThatIsPublishedLaterIsAwaited(t *testing.T) {
	check := func(name string) string {
		return fmt.Sprintf(`{"kind":"MachineHealthCheck","metadata":{"namespace":"n","name":%q,
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},
			"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{"clusterName":"w"}}`, name)
	}
	target := newMemory(t, "target")
	x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra, check("first"),
		check("second")), target)
	sampled, reads := false, map[string]int{}
	read := func(ref object.Ref) {
		if reads[ref.Name]++; ref.Name == "first" || reads[ref.Name] >= 3 {
			publishPause(target.objects[ref])
		}
	}
	target.onList = func(k kube.Kind, o kube.ListOptions) {
		target.mu.Lock()
		defer target.mu.Unlock()
		for ref := range target.objects {
			if k.Kind == "MachineHealthCheck" && ref.Kind == k.Kind && sampled && o.Labels != "" {
				read(ref)
			}
		}
		sampled = sampled || k.Kind == "MachineHealthCheck" && o.Limit == pauseSample
	}
	target.onGet = func(ref object.Ref) {
		target.mu.Lock()
		defer target.mu.Unlock()
		if sampled && ref.Kind == "MachineHealthCheck" {
			read(ref)
		}
	}
	x.hooks.BeforeRelease = func(context.Context, Unit) error {
		second := target.get(t, "MachineHealthCheck.cluster.x-k8s.io/n/second")
		if why := capi.NotAcknowledged(second.Object, "True"); why != "" {
			return errors.New("released early: " + why)
		}
		return nil
	}
	if failures, err := x.run(t); err != nil || x.released(t) != "n/w" {
		t.Errorf("released %q: %v: %q", x.released(t), err, failures)
	}
}

// TestOnlyWhatItsControllerReachesIsAwaited: the source is older than the condition Paused, and the
// target publishes it of DevMachines and DevClusters. A controller answers for an object that has
// the owner that its contract asks for, so that one has to; for others no answer ever comes.
func TestOnlyWhatItsControllerReachesIsAwaited(t *testing.T) {
	devMachine := func(owner string) string {
		return fmt.Sprintf(`{"kind":"DevMachine","metadata":{"namespace":"n","name":"m",
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[%s]},"spec":{}}`, owner)
	}
	devCluster := func(more string) string {
		return fmt.Sprintf(`{"kind":"DevCluster","metadata":{"namespace":"n","name":"w",
			"ownerReferences":[{"kind":"Cluster","name":"w"}]%s},"spec":{}}`, more)
	}
	const controlPlane = `{"kind":"KubeadmControlPlane","metadata":{"namespace":"n","name":"cp",
		"labels":{"cluster.x-k8s.io/cluster-name":"w"},
		"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{}}`
	bootData := `{"kind":"Secret","metadata":{"namespace":"n","name":"boot",
		"labels":{"cluster.x-k8s.io/cluster-name":"w"}}}`
	for _, tt := range []struct {
		name    string
		objects []string
		silent  string // the kind of the object that nothing acknowledges
		awaited bool
	}{
		{"of a control plane whose Machine was never reconciled", []string{devCluster(""), controlPlane,
			devMachine(`{"kind":"KubeadmControlPlane","name":"cp"}`)}, "DevMachine", false},
		{"of a Machine", []string{devCluster(""), needsMachine("") + "}", bootData,
			devMachine(`{"kind":"Machine","name":"m"}`)}, "DevMachine", true},
		{"externally managed", []string{devCluster(
			`,"annotations":{"cluster.x-k8s.io/managed-by":"somebody"}`)}, "DevCluster", false},
		{"of a Cluster", []string{devCluster("")}, "DevCluster", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := newMemory(t, "target", `{"kind":"DevMachine","metadata":{"namespace":"other",
				"name":"live"}}`, `{"kind":"DevCluster","metadata":{"namespace":"other","name":"live"}}`)
			for _, u := range target.objects {
				publishPause(u)
			}
			target.onCreate = func(u *unstructured.Unstructured) {
				if u.GetKind() != tt.silent {
					publishPause(u)
				}
			}
			x := newTrial(t, newMemory(t, "source", append([]string{needsNamespace, needsCluster},
				tt.objects...)...), target)
			x.tuning.Wait = 200 * time.Millisecond
			failures, err := x.run(t)
			if awaited := err != nil; awaited != tt.awaited || awaited == (x.released(t) == "n/w") {
				t.Errorf("released %q: %v: %q", x.released(t), err, failures)
			}
			if tt.awaited && !strings.Contains(fmt.Sprint(failures), tt.silent) {
				t.Errorf("no failure names the %s: %q", tt.silent, failures)
			}
		})
	}
}
