package restore

import (
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestFinalizersAndHooksOfOtherControllersAreReported: once for all objects that carry them, and
// without blocking anything.
func TestFinalizersAndHooksOfOtherControllersAreReported(t *testing.T) {
	const hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/storage"
	machine := needsMachine(`,"finalizers":["machine.cluster.x-k8s.io","inventory.example.com/machine"],` +
		`"annotations":{"` + hook + `":"storage",` +
		`"pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup":""}`)
	infra := strings.Replace(needsMachineInfra, `"name":"m",`,
		`"name":"m","finalizers":["inventory.example.com/machine"],`, 1)
	x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra,
		machine+`,"status":{"nodeRef":{"name":"m"}}}`, infra), newMemory(t, "target"))
	plan := x.makePlan(t)
	var got []string
	for _, f := range plan.Findings {
		if f.Code == object.CodeForeignHold {
			got = append(got, f.Message)
		}
	}
	slices.Sort(got)
	if len(got) != 2 || !strings.HasPrefix(got[0], `1 objects carry "`+hook+`"`) ||
		!strings.HasPrefix(got[1], `2 objects carry "inventory.example.com/machine"`) {
		t.Errorf("found %q", got)
	}
	if slices.ContainsFunc(plan.Units, func(u Unit) bool { return u.Blocked }) {
		t.Errorf("blocked: %v", plan.Findings)
	}
}
