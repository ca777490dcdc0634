package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// addressOf is an address of a workload cluster of one pool.
func addressOf(key object.Key, group, kind, pool string) string {
	return fmt.Sprintf(`{"kind":"IPAddressClaim","metadata":{"namespace":%q,"name":"of-%s",
		"labels":{"cluster.x-k8s.io/cluster-name":%[2]q}},
		"spec":{"poolRef":{"apiGroup":%q,"kind":%q,"name":%q}}}`, key.Namespace, key.Name, group, kind, pool)
}

const (
	sharedPoolRef = "GlobalInClusterIPPool.ipam.cluster.x-k8s.io/shared"
	sharedPool    = `{"kind":"GlobalInClusterIPPool","metadata":{"name":"shared"},"spec":{}}`
)

// address is an address of a workload cluster of sharedPool.
func address(key object.Key) string {
	return addressOf(key, "ipam.cluster.x-k8s.io", "GlobalInClusterIPPool", "shared")
}

// selectWorkloads makes the trial's next operation a restore of these workload clusters.
func (x *trial) selectWorkloads(t *testing.T, keys ...object.Key) {
	t.Helper()
	x.spec.Selection, x.plan = Selection{Workloads: keys}, nil
	x.load(t)
}

// poolFinding is the message about a pool in the plan, "" when there is none.
func poolFinding(p *Plan) string {
	for _, f := range p.Findings {
		if f.Code == object.CodePoolShared {
			return f.Severity.String() + ": " + f.Message
		}
	}
	return ""
}

// TestAPoolWaitsForWorkloadClustersThatAreLeftOut: their addresses are in use, and a pool at work
// would not know that. The restore of the last of them releases it.
func TestAPoolWaitsForWorkloadClustersThatAreLeftOut(t *testing.T) {
	one, two := object.Key{Namespace: "one", Name: "w"}, object.Key{Namespace: "two", Name: "w"}
	x := newTrial(t, twoTenants(t, address(one), address(two),
		sharedPool), newMemory(t, "target"))
	paused := func() bool { return capi.PausedByUs(x.target.get(t, sharedPoolRef).Object) }

	x.selectWorkloads(t, one)
	if f := poolFinding(x.makePlan(t)); !strings.HasPrefix(f, "warning: ") ||
		!strings.Contains(f, "two/w; it stays paused") {
		t.Errorf("the plan of the first says %q", f)
	}
	if _, err := x.run(t); err != nil || x.released(t) != "one/w" || !paused() {
		t.Fatalf("released %q, the pool is paused: %t: %v", x.released(t), paused(), err)
	}
	x.selectWorkloads(t, two)
	if f := poolFinding(x.makePlan(t)); f != "" {
		t.Errorf("the plan of the last says %q", f)
	}
	if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" || paused() {
		t.Errorf("released %q, the pool is paused: %t: %v", x.released(t), paused(), err)
	}
}

// TestAPoolWaitsForAnAddressOfNoWorkloadCluster, which was reserved by hand and is left out.
func TestAPoolWaitsForAnAddressOfNoWorkloadCluster(t *testing.T) {
	one := object.Key{Namespace: "one", Name: "w"}
	x := newTrial(t, twoTenants(t, address(one), sharedPool, `{"kind":"IPAddressClaim",
		"metadata":{"namespace":"two","name":"vip"},"spec":{"poolRef":{"apiGroup":
			"ipam.cluster.x-k8s.io","kind":"GlobalInClusterIPPool","name":"shared"}}}`),
		newMemory(t, "target"))
	paused := func() bool { return capi.PausedByUs(x.target.get(t, sharedPoolRef).Object) }
	x.selectWorkloads(t, one)
	if f := poolFinding(x.makePlan(t)); !strings.Contains(f,
		"IPAddressClaim.ipam.cluster.x-k8s.io/two/vip; it stays paused") {
		t.Errorf("the plan of the first says %q", f)
	}
	if _, err := x.run(t); err != nil || !paused() {
		t.Fatalf("the pool is paused: %t: %v", paused(), err)
	}
	x.spec.Selection, x.plan = Selection{}, nil
	x.load(t)
	if f := poolFinding(x.makePlan(t)); f != "" {
		t.Errorf("the plan of all says %q", f)
	}
	if _, err := x.run(t); err != nil || paused() {
		t.Errorf("the pool is paused: %t: %v", paused(), err)
	}
}

// TestAPoolWaitsForABlockedWorkloadCluster, which is in the plan and does not come.
func TestAPoolWaitsForABlockedWorkloadCluster(t *testing.T) {
	one, two := object.Key{Namespace: "one", Name: "w"}, object.Key{Namespace: "two", Name: "v"}
	x := newTrial(t, twoTenants(t, address(one), address(two),
		`{"kind":"Cluster","metadata":{"namespace":"two","name":"v","finalizers":["a/b"],
			"deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{}}`,
		sharedPool), newMemory(t, "target"))
	if f := poolFinding(x.makePlan(t)); !strings.Contains(f, "two/v") {
		t.Errorf("the plan says %q", f)
	}
	_, err := x.run(t)
	if paused := capi.PausedByUs(x.target.get(t, sharedPoolRef).Object); err == nil || !paused ||
		x.released(t) != "one/w two/w" {
		t.Errorf("released %q, the pool is paused: %t: %v", x.released(t), paused, err)
	}
}

// TestAPoolThatAwaitsOthersStaysPausedWhenItIsLeft: an undo leaves it for another workload cluster
// that has addresses of it by now.
func TestAPoolThatAwaitsOthersStaysPausedWhenItIsLeft(t *testing.T) {
	one, two := object.Key{Namespace: "one", Name: "w"}, object.Key{Namespace: "two", Name: "w"}
	x := newTrial(t, twoTenants(t, address(one), address(two), sharedPool), newMemory(t, "target"))
	x.hooks.BeforeRelease = func(context.Context, Unit) error { return errDied }
	x.selectWorkloads(t, one)
	if _, err := x.run(t); err == nil {
		t.Fatal("its unit is released")
	}
	ref, err := object.ParseRef(sharedPoolRef)
	if err != nil {
		t.Fatal(err)
	}
	x.needed = map[object.Ref]bool{ref: true}
	if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
		t.Fatal(err)
	}
	pool := x.target.get(t, sharedPoolRef)
	if pool == nil || !capi.PausedByUs(pool.Object) || pool.GetAnnotations()[annotationOperation] != "" {
		t.Errorf("the pool is left as %v", pool)
	}
}

// TestAPoolThatIsLeftStaysPausedWhenTheCallerSaysSo, and is given back otherwise.
func TestAPoolThatIsLeftStaysPausedWhenTheCallerSaysSo(t *testing.T) {
	one := object.Key{Namespace: "one", Name: "w"}
	ref, err := object.ParseRef(sharedPoolRef)
	if err != nil {
		t.Fatal(err)
	}
	for _, stays := range []bool{true, false} {
		x := newTrial(t, twoTenants(t, address(one), sharedPool), newMemory(t, "target"))
		x.hooks.BeforeRelease = func(context.Context, Unit) error { return errDied }
		if _, err := x.run(t); err == nil {
			t.Fatal("its unit is released")
		}
		x.needed, x.stayPaused = map[object.Ref]bool{ref: true}, map[object.Ref]bool{ref: stays}
		if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
			t.Fatal(err)
		}
		if pool := x.target.get(t, sharedPoolRef); pool == nil || capi.PausedByUs(pool.Object) != stays {
			t.Errorf("stays paused: %v; it is left as %v", stays, pool)
		}
	}
}

// TestAPoolThatIsAtWorkOnTheTargetIsReported: its addresses that are in use and not there.
func TestAPoolThatIsAtWorkOnTheTargetIsReported(t *testing.T) {
	one, two := object.Key{Namespace: "one", Name: "w"}, object.Key{Namespace: "two", Name: "w"}
	x := newTrial(t, twoTenants(t, address(one), address(two), sharedPool), newMemory(t, "target", sharedPool))
	x.selectWorkloads(t, one)
	if f := poolFinding(x.makePlan(t)); !strings.Contains(f, "two/w; while it is at work it may hand") {
		t.Errorf("the plan says %q", f)
	}
}

// TestAPoolWithoutAPauseComesWithTheLastOfItsUsers, after their addresses.
func TestAPoolWithoutAPauseComesWithTheLastOfItsUsers(t *testing.T) {
	const pool = "OpenStackFloatingIPPool.infrastructure.cluster.x-k8s.io/one/shared"
	w, v := object.Key{Namespace: "one", Name: "w"}, object.Key{Namespace: "one", Name: "v"}
	floating := func(key object.Key) string {
		return addressOf(key, "infrastructure.cluster.x-k8s.io", "OpenStackFloatingIPPool", "shared")
	}
	x := newTrial(t, twoTenants(t, floating(w), floating(v),
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"v"},"spec":{}}`,
		`{"kind":"OpenStackFloatingIPPool","metadata":{"namespace":"one","name":"shared"},"spec":{}}`),
		newMemory(t, "target"))
	x.selectWorkloads(t, w)
	if f := poolFinding(x.makePlan(t)); !strings.Contains(f, "one/v; it has no pause, so it is not created") {
		t.Errorf("the plan of the first says %q", f)
	}
	if _, err := x.run(t); err != nil || x.released(t) != "one/w" || x.target.get(t, pool) != nil {
		t.Fatalf("released %q, the pool is %v: %v", x.released(t), x.target.get(t, pool), err)
	}
	x.selectWorkloads(t, v)
	if f := poolFinding(x.makePlan(t)); f != "" {
		t.Errorf("the plan of the last says %q", f)
	}
	_, err := x.run(t)
	last := slices.Index(x.target.created, object.Ref{Group: "ipam.cluster.x-k8s.io",
		Kind: "IPAddressClaim", Namespace: "one", Name: "of-v"})
	at := slices.IndexFunc(x.target.created, func(r object.Ref) bool { return r.String() == pool })
	if err != nil || x.released(t) != "one/v one/w" || last < 0 || at < last {
		t.Errorf("released %q, created %v: %v", x.released(t), x.target.created, err)
	}
}
