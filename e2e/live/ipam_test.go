package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// Namespaces of TestLongAddressesAreGivenOnce. Each has a workload cluster and a pool of its own,
// and both use a global pool. The third namespace is only on the target of the move: its claims
// wait there for the global pool.
const (
	ipamOneNS, ipamTwoNS, ipamWaitingNS = "ipam-one", "ipam-two", "ipam-waiting"

	ipamClaims = "ipam.cluster.x-k8s.io/v1beta2"
	ipamPools  = "ipam.cluster.x-k8s.io/v1alpha2"
	ownPool    = "InClusterIPPool"
	globalPool = "GlobalInClusterIPPool"

	// poolSettles is how long a pool may take that gives an address, many times.
	poolSettles = 10 * time.Second
)

// addressBook is who has which address. It is filled by watches of all management clusters.
type addressBook struct {
	problems
	mu sync.Mutex
	// by claims, and by pools and addresses
	addressOf, claimOf map[string]string
}

// TestLongAddressesAreGivenOnce moves workload clusters with addresses of the in-cluster IPAM
// provider, loses the management cluster that has them then, and restores them into a third. The
// provider works on all of them. No address may be given to two claims, and no claim may get
// another address, at any moment: not even to a claim on the source when the move has died after
// the first workload cluster was retired, and the source does not know its addresses any more. A
// claim that is new after a release gets an address that nobody has.
func TestLongAddressesAreGivenOnce(t *testing.T) {
	shape := func(namespace string) fleet.Shape {
		return fleet.Shape{Name: "web", Namespace: namespace, ControlPlanes: 1}
	}
	f := startWith(t, []string{lab.InClusterIPAM}, shape(ipamOneNS), shape(ipamTwoNS))
	o := &operator{fixture: f, t: t, state: t.TempDir()}
	namespaces := []string{ipamOneNS, ipamTwoNS}
	book := &addressBook{addressOf: map[string]string{}, claimOf: map[string]string{}}
	f.follow(t, f.source, ipamClaims, "IPAddress", book.note)
	f.follow(t, f.target, ipamClaims, "IPAddress", book.note)
	f.create(t, f.source, pool(globalPool, "", "10.3.0"))
	for i, ns := range namespaces {
		f.create(t, f.source, pool(ownPool, ns, fmt.Sprintf("10.%d.0", i+1)))
	}
	f.claim(t, f.source, "first")
	before, err := observe.StableInventory(t.Context(), f.source.Kubeconfig(), namespaces...)
	if err != nil {
		t.Fatal(err)
	}

	// Of two users of a pool, one must not move alone. The snapshot makes the store.
	if _, err := f.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := o.run(codeFindings, o.moveArgs("plan", f.source, f.target, ipamOneNS)...)
	if !strings.Contains(out.text(), "pool-shared") {
		t.Errorf("the plan for one of two users of a pool does not say pool-shared:\n%s", out.text())
	}
	waiting := f.claimBefore(t, f.target)
	o.moveHalf(book)
	o.assertMoved(t, f.source, f.target, before, namespaces...)
	f.assertNoPool(t, f.source)
	f.awaitAddresses(t, f.target)
	book.none(t, "given twice")
	f.release(t, f.target, book, waiting)
	f.claim(t, f.target, "moved")
	book.none(t, "given twice")
	if err := f.source.KillAll(); err != nil {
		t.Fatal(err)
	}

	f.addThird(t, lab.InClusterIPAM)
	f.follow(t, f.target, ipamClaims, "IPAddress", book.note)
	if err := f.captureAndKill(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.restore(codeDone, "--source", f.source.Name(), "--source-is-gone", "--force",
		"source-seen-recently", "--signing-key", o.keys("signing.key"))
	o.assertRestored(t, f.before.In(namespaces...), nil, namespaces...)
	f.claim(t, f.target, "restored")
	book.none(t, "given twice")
	f.assertKept(t, book)
}

// moveHalf kills a move once its first workload cluster is retired, claims addresses of the pool
// that both have for the other one on the source, which must give none, and resumes the move.
func (o *operator) moveHalf(book *addressBook) {
	t := o.t
	t.Helper()
	o.runAndKill(moment{o.source, "Cluster", ipamOneNS, func(event watch.Event) bool {
		return event.Type == watch.Deleted
	}}, append(o.moveArgs("run", o.source, o.target, ipamOneNS, ipamTwoNS), "--canary",
		ipamOneNS+"/web", "--yes")...)
	var claims []*unstructured.Unstructured
	for i := range 4 {
		claim := object(ipamClaims, "IPAddressClaim", ipamTwoNS, fmt.Sprintf("late-%d", i))
		claim.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "web"})
		claim.Object["spec"] = map[string]any{"clusterName": "web", "poolRef": map[string]any{
			"apiGroup": "ipam.cluster.x-k8s.io", "kind": globalPool, "name": "pool"}}
		claims = append(claims, claim)
	}
	o.fixture.create(t, o.source, claims...)
	time.Sleep(poolSettles)
	book.none(t, "given twice")
	for _, claim := range claims {
		live, at := claim.DeepCopy(), client.ObjectKeyFromObject(claim)
		if err := o.clients[o.source].Get(t.Context(), at, live); err != nil {
			t.Fatal(err)
		}
		if name, _, _ := unstructured.NestedString(live.Object, "status", "addressRef",
			"name"); name != "" {
			t.Errorf("%s got the address %s of a pool that the source does not know wholly",
				claim.GetName(), name)
		}
		// The provider takes its finalizer off only once the pool is at work again.
		live.SetFinalizers(nil)
		err := o.clients[o.source].Update(t.Context(), live)
		if err = errors.Join(err, o.clients[o.source].Delete(t.Context(), claim)); err != nil {
			t.Fatal(err)
		}
	}
	o.run(codeDone, slices.Concat([]string{"operation", "resume", "latest"},
		o.moveFlags(o.source, o.target))...)
}

// pool is a pool of 40 addresses below a prefix such as 10.1.0.
func pool(kind, namespace, prefix string) *unstructured.Unstructured {
	o := object(ipamPools, kind, namespace, "pool")
	o.Object["spec"] = map[string]any{
		"addresses": []any{prefix + ".10-" + prefix + ".49"},
		"prefix":    int64(24), "gateway": prefix + ".1"}
	return o
}

// claim creates three claims of each pool for each workload cluster, as infrastructure providers
// make them, and waits until all have an address.
func (f *fixture) claim(t *testing.T, m *lab.Mgmt, prefix string) {
	t.Helper()
	for _, ns := range []string{ipamOneNS, ipamTwoNS} {
		machines, err := f.list(t.Context(), m, "infrastructure.cluster.x-k8s.io/v1beta2",
			"DevMachine", ns)
		if err != nil || len(machines) == 0 {
			t.Fatalf("%d machines in %s: %v", len(machines), ns, err)
		}
		for i := range 6 {
			kind := ownPool
			if i%2 == 1 {
				kind = globalPool
			}
			claim := object(ipamClaims, "IPAddressClaim", ns, fmt.Sprintf("%s-%d", prefix, i))
			claim.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "web"})
			_ = unstructured.SetNestedSlice(claim.Object, []any{map[string]any{
				"apiVersion": machines[0].GetAPIVersion(), "kind": machines[0].GetKind(),
				"name": machines[0].GetName(), "uid": string(machines[0].GetUID()),
				"controller": true}}, "metadata", "ownerReferences")
			claim.Object["spec"] = map[string]any{"clusterName": "web", "poolRef": map[string]any{
				"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "pool"}}
			f.create(t, m, claim)
		}
	}
	f.awaitAddresses(t, m)
}

// claimBefore creates claims of the global pool on a management cluster that does not have it yet.
// The provider serves them as soon as it may.
func (f *fixture) claimBefore(t *testing.T, m *lab.Mgmt) []*unstructured.Unstructured {
	t.Helper()
	f.create(t, m, object("v1", "Namespace", "", ipamWaitingNS))
	var claims []*unstructured.Unstructured
	for i := range 4 {
		claim := object(ipamClaims, "IPAddressClaim", ipamWaitingNS, fmt.Sprintf("waiting-%d", i))
		claim.Object["spec"] = map[string]any{"poolRef": map[string]any{
			"apiGroup": "ipam.cluster.x-k8s.io", "kind": globalPool, "name": "pool"}}
		f.create(t, m, claim)
		claims = append(claims, claim)
	}
	return claims
}

// release deletes claims and waits until nobody has their addresses.
func (f *fixture) release(t *testing.T, m *lab.Mgmt, book *addressBook,
	claims []*unstructured.Unstructured) {
	t.Helper()
	for _, claim := range claims {
		if err := f.clients[m].Delete(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the end of the waiting claims", func(context.Context) error {
		book.mu.Lock()
		defer book.mu.Unlock()
		for _, claim := range claims {
			if address := book.addressOf[claim.GetNamespace()+"/"+claim.GetName()]; address != "" {
				return fmt.Errorf("%s: %w", address, errNotYet)
			}
		}
		return nil
	})
}

// awaitAddresses waits until all claims of a management cluster have an address.
func (f *fixture) awaitAddresses(t *testing.T, m *lab.Mgmt) {
	t.Helper()
	await(t, "addresses of all claims on "+m.Name(), func(ctx context.Context) error {
		claims, err := f.list(ctx, m, ipamClaims, "IPAddressClaim", "")
		for _, claim := range claims {
			if name, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef",
				"name"); name == "" {
				return fmt.Errorf("%s/%s: %w", claim.GetNamespace(), claim.GetName(), errNotYet)
			}
		}
		return err
	})
}

// note notes an address that somebody has or had.
func (b *addressBook) note(m *lab.Mgmt, event watch.EventType, o *unstructured.Unstructured) {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, path...)
		return value
	}
	claim := o.GetNamespace() + "/" + text("spec", "claimRef", "name")
	address := text("spec", "address")
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.addressOf[claim]; was != "" && was != address {
		b.add("%s: claim %s had %s and now has %s", m.Name(), claim, was, address)
	}
	if was := b.claimOf[address]; was != "" && was != claim {
		b.add("%s: %s was given to %s and is now given to %s", m.Name(), address, was, claim)
	}
	if event == watch.Deleted && o.GetNamespace() == ipamWaitingNS {
		delete(b.addressOf, claim)
		delete(b.claimOf, address)
		return
	}
	b.addressOf[claim], b.claimOf[address] = address, claim
}

// assertKept asserts that the target has every claim that ever had an address, with that address.
func (f *fixture) assertKept(t *testing.T, book *addressBook) {
	t.Helper()
	addresses, err := f.list(t.Context(), f.target, ipamClaims, "IPAddress", "")
	if err != nil {
		t.Fatal(err)
	}
	book.mu.Lock()
	defer book.mu.Unlock()
	// Three rounds of six claims for each of two workload clusters.
	if len(addresses) != len(book.addressOf) || len(addresses) != 36 {
		t.Errorf("the target has %d addresses, and %d were given, want 36", len(addresses),
			len(book.addressOf))
	}
	t.Logf("%d addresses were given", len(book.addressOf))
}

// assertNoPool asserts that a management cluster has no pool that gives addresses.
func (f *fixture) assertNoPool(t *testing.T, m *lab.Mgmt) {
	t.Helper()
	for _, kind := range []string{ownPool, globalPool} {
		pools, err := f.list(t.Context(), m, ipamPools, kind, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, pool := range pools {
			if !observe.Paused(&pool) {
				t.Errorf("%s %s/%s gives addresses on %s", kind, pool.GetNamespace(), pool.GetName(),
					m.Name())
			}
		}
	}
}
