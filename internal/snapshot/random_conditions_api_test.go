//go:build api

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// condition is what a snapshot is taken under.
type condition struct {
	name  string
	way   int
	all   bool // nothing of what was known can be used
	quiet bool // nothing happens to the source
	// objects says that things happen to objects alone: no kind has to be read again.
	objects bool
	// begin may change the options, and take snapshots before; met reports in the end
	// whether it came to that.
	begin func(*randomRun, *snapshot.Options) (met func() bool)
}

var conditions = []condition{
	{name: "as it is, listed", way: exactLists, objects: true}, // these two are first
	{name: "as it is, followed", way: watches, objects: true},
	{name: "nothing happened", way: eitherWay, quiet: true},
	{name: "changes while it is listed", way: exactLists, begin: (*randomRun).changes},
	{name: "changes while it is followed", way: watches, begin: (*randomRun).changes},
	{name: "watches break off", way: watches, begin: (*randomRun).breakOff},
	{name: "watches break off, and changes", way: watches,
		begin: func(k *randomRun, o *snapshot.Options) func() bool {
			broke, changed := k.breakOff(o), k.changes(o)
			return func() bool { return broke() && changed() }
		}},
	{name: "410 in a watch", way: watches,
		begin: func(k *randomRun, _ *snapshot.Options) func() bool {
			k.through.set(ending{1 + k.rand.IntN(3), expiresLater})
			return func() bool { return len(k.through.gone()) == 1 }
		}},
	{name: "410 for all watches", way: watches,
		begin: func(k *randomRun, _ *snapshot.Options) func() bool {
			k.through.set(slices.Repeat([]ending{{0, expiresAtOnce}}, 1000)...)
			return func() bool { return len(k.through.gone()) > 10 }
		}},
	{name: "compacted before", way: eitherWay,
		begin: func(k *randomRun, _ *snapshot.Options) func() bool {
			k.compact()
			k.forgotten = k.last.Envelope.ResourceVersion
			return k.expired
		}},
	{name: "compacted meanwhile", way: exactLists,
		begin: func(k *randomRun, _ *snapshot.Options) func() bool {
			k.meanwhile(func() { k.happen(); k.compact() })
			k.at = 4 + k.rand.IntN(6) // its resourceVersion is decided
			return k.expired
		}},
	{name: "an exact LIST is refused", way: exactLists, begin: (*randomRun).refuse},
	{name: "the catalog is lost", way: eitherWay, all: true,
		begin: func(k *randomRun, o *snapshot.Options) func() bool {
			k.r.newCatalog()
			o.State = k.r.c.SnapshotState(k.r.st.ID(), k.r.m.UID())
			return func() bool { return true }
		}},
	{name: "the parent is deleted", way: eitherWay, all: true,
		begin: func(k *randomRun, _ *snapshot.Options) func() bool {
			k.r.removeSnapshots()
			return func() bool { return true }
		}},
	{name: "other providers", way: eitherWay, all: true, begin: (*randomRun).otherProviders},
	{name: "a scope before", way: eitherWay,
		begin: func(k *randomRun, o *snapshot.Options) func() bool {
			part := *o
			part.Scope.Namespaces = []string{k.w.namespaces[k.rand.IntN(len(k.w.namespaces))]}
			is := k.r.same(k.run(part), part)
			clear(k.whole) // the first run of a scope reads everything
			return func() bool { return is.Envelope.Partial }
		}},
	{name: "a run was stopped", way: eitherWay, begin: (*randomRun).stopped},
	{name: "a kind goes too late", way: eitherWay, begin: (*randomRun).goneLate},
	{name: "a kind is upgraded too late", way: eitherWay, begin: (*randomRun).upgradedLate},
}

// happen is what happens while a snapshot is taken.
func (k *randomRun) happen() {
	n := 2 + k.rand.IntN(4)
	k.w.some(n, true)
	k.during += n
}

func (k *randomRun) changes(*snapshot.Options) func() bool {
	k.meanwhile(k.happen)
	return func() bool { return k.during > 0 }
}

func (k *randomRun) breakOff(*snapshot.Options) func() bool {
	var list []ending
	for _, event := range k.rand.Perm(5)[:2+k.rand.IntN(2)] {
		list = append(list, ending{1 + event, k.rand.IntN(breaksAfter + 1)})
	}
	k.through.set(list...)
	return k.through.restarted
}

func (k *randomRun) compact() {
	oldest, err := servers.Compact(k.t.Context(), 0)
	if err != nil {
		k.t.Error(err)
	}
	k.oldest = oldest
}

// refuse makes one kind, to which nothing happens meanwhile, one that can only be read at its
// newest state.
func (k *randomRun) refuse(*snapshot.Options) func() bool {
	refused := []string{"MachineDeployment", "KubeadmConfigTemplate", "DevMachineTemplate",
		"ClusterClass"}[k.rand.IntN(4)]
	k.r.refuses = func(kind kube.Kind) bool { return kind.Kind == refused }
	return func() bool { return k.whole[k.kindNamed(refused)] }
}

func (k *randomRun) kindNamed(name string) object.GroupKind {
	at := slices.IndexFunc(k.kinds, func(kind kube.Kind) bool { return kind.Kind == name })
	if at < 0 {
		k.t.Fatalf("there is no kind %s", name)
	}
	return k.kinds[at].GroupKind
}

func (k *randomRun) otherProviders(*snapshot.Options) func() bool {
	kind := k.w.kind(capi.Provider)
	u := newObject(kind, k.w.namespaces[0], "infrastructure-"+k.w.number())
	u.SetLabels(map[string]string{"clusterctl.cluster.x-k8s.io": "",
		"cluster.x-k8s.io/provider": u.GetName()})
	maps.Copy(u.Object, map[string]any{"providerName": u.GetName(), "type": "InfrastructureProvider",
		"version": fmt.Sprintf("v1.%d.0", k.w.made)})
	if _, err := k.r.m.Writer().Create(k.t.Context(), kind, u); err != nil {
		k.t.Fatal(err)
	}
	before := len(k.last.About.Providers)
	return func() bool {
		providers, err := k.r.m.Providers(k.t.Context(), k.kinds)
		return err == nil && len(providers) == before+1
	}
}

// stopped ends a run in its middle: what it took out of memory is half changed.
func (k *randomRun) stopped(o *snapshot.Options) func() bool {
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	k.meanwhile(cancel)
	halted := *o
	halted.ExactLimit = k.way
	_, err := snapshot.Create(ctx, halted)
	if err == nil {
		k.t.Error("a run that was stopped took a snapshot")
	}
	k.w.some(3, false)
	k.calls, k.at, k.whole, k.watched = 0, 0, map[object.GroupKind]bool{}, false
	return func() bool { return errors.Is(err, context.Canceled) }
}

// upgradedLate changes a kind after a run has asked for the kinds. Its snapshot has objects as they
// were read, some by the one schema and some by the other: only the next one, for which it is
// another kind, can be what a full one is.
func (k *randomRun) upgradedLate(o *snapshot.Options) func() bool {
	k.captureWidgets()
	late, upgraded := *o, false
	late.Providers = func(ctx context.Context, kinds []kube.Kind) ([]kube.Provider, error) {
		if !upgraded {
			upgraded = true
			if err := k.w.upgradeKind(); err != nil {
				k.t.Error(err)
			}
		}
		return k.r.m.Providers(ctx, kinds)
	}
	k.kinds = k.kindsNow()
	taken := k.run(late)
	k.last, k.notInCut = k.r.verified(taken.Envelope), taken.NotInCut
	k.calls, k.whole, k.watched = 0, map[object.GroupKind]bool{}, false
	return func() bool { return upgraded && k.whole[widgetKind] }
}

// goneLate takes a kind away after the run has asked for the kinds.
func (k *randomRun) goneLate(o *snapshot.Options) func() bool {
	for {
		// else the run would begin with reading all
		if kind, there := kube.FindKind(k.w.kinds, gizmoKind); there && kind.Namespaced {
			break
		}
		if err := k.w.comeOrGo(); err != nil {
			k.t.Fatal(err)
		}
	}
	removed := false
	o.Providers = func(ctx context.Context, kinds []kube.Kind) ([]kube.Provider, error) {
		if _, asked := kube.FindKind(kinds, gizmoKind); asked {
			if err := k.w.removeKind(gizmoKind); err != nil {
				k.t.Error(err)
			}
			removed, k.w.remade = true, true
		}
		return k.r.m.Providers(ctx, kinds)
	}
	return func() bool { return removed }
}

func (k *randomRun) captureWidgets() {
	if _, err := k.r.m.Writer().PatchMetadata(k.t.Context(), crdKind, "", "widgets."+randomGroup,
		map[string]any{"labels": map[string]any{contractLabel: "v1"}}); err != nil {
		k.t.Fatal(err)
	}
}
