package live

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// measureOverlap starts to ask the source for a Cluster. The function that it returns waits until
// that is paused, and returns how long it was not, from the first answer.
func (c *comeback) measureOverlap(t *testing.T, namespace string) func() time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	result := make(chan time.Duration, 1)
	go func() {
		defer cancel()
		defer close(result)
		var first time.Time
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			// An API server that starts answers "retry after", and the client would sleep so long.
			once, done := context.WithTimeout(ctx, 300*time.Millisecond)
			cluster, err := c.cluster(once, c.source, namespace)
			done()
			if err != nil {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			if observe.Paused(cluster) {
				result <- time.Since(first)
				return
			}
		}
	}()
	return func() time.Duration {
		t.Helper()
		overlap, ok := <-result
		if !ok {
			t.Fatalf("the Cluster of %s is not paused on the source", namespace)
		}
		return overlap
	}
}

// printedRE is the text of the finding came-back.
var printedRE = regexp.MustCompile(`at (\S+) it had .* paused within (\S+) of its first answer`)

// printedOverlap returns the overlap that the daemon prints of a fence since a time. It does so
// once the fence is through.
func (c *comeback) printedOverlap(t *testing.T, o *operator, since time.Time) time.Duration {
	t.Helper()
	var out output
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		out = o.exec(t.Context(), o.state, "mgmt", "check", c.source.Name(), "--address",
			c.daemon.Address())
		if m := printedRE.FindStringSubmatch(out.stdout); m != nil {
			at, errAt := time.Parse(time.RFC3339, m[1])
			overlap, err := time.ParseDuration(m[2])
			if err := errors.Join(errAt, err); err != nil {
				t.Fatal(err)
			}
			if !at.Before(since.Truncate(time.Second)) {
				return overlap
			}
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("no overlap is printed:\n%s\n%s", out.text(), c.daemon.Log())
	return 0
}

// fence fences on the source by hand. Controllers that lost their API server take up to half a
// minute until they ask it again.
func (o *operator) fence(code int, c *comeback, args ...string) output {
	o.t.Helper()
	return o.run(code, slices.Concat([]string{"mgmt", "fence", c.source.Name(), "--yes",
		"--standalone", "--wait", "2m", "--store", c.s3.URL(bucket, "main"),
		"--trusted-key", c.keys("signing.pub"), "--source-kubeconfig", c.source.Kubeconfig()}, args)...)
}

// assertFenced asserts that the controllers of the source acknowledge the pause of a workload
// cluster, and that nobody can end it.
func (c *comeback) assertFenced(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := observe.Await(ctx, c.source.Kubeconfig(), func(is observe.Objects) []string {
		return append(unacknowledged(is, "Cluster"), unacknowledged(is, "Machine")...)
	}, namespace); err != nil {
		t.Errorf("the source does not acknowledge the fence: %v", err)
	}
	cluster, err := c.cluster(ctx, c.source, namespace)
	if err != nil {
		t.Fatal(err)
	}
	unpause := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))
	// The daemon arms the policy after the pause. Without a dry run that would be a real unpause.
	for err = nil; err == nil && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		err = c.clients[c.source].Patch(ctx, cluster.DeepCopy(), unpause, client.DryRunAll)
	}
	if err == nil || !strings.Contains(err.Error(), "mgmtd-moved") {
		t.Fatalf("the policy does not refuse to unpause %s: %v", namespace, err)
	}
	if err := c.clients[c.source].Patch(ctx, cluster.DeepCopy(), unpause); err == nil {
		t.Errorf("somebody could unpause %s", namespace)
	}
}

func unacknowledged(objects observe.Objects, kind string) []string {
	var problems []string
	all := objects.Of("cluster.x-k8s.io", kind)
	for _, o := range all {
		if !observe.ConditionTrue(o, "Paused") {
			problems = append(problems, fmt.Sprintf("%s is not paused", observe.RefOf(o)))
		}
	}
	if len(all) == 0 {
		problems = append(problems, "there is no "+kind)
	}
	return problems
}
