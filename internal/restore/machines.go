package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// machinesError says that controllers of the target created or deleted Machines of a workload
// cluster after it was released: they replace what the restore brought.
type machinesError struct {
	Came, Gone []object.Ref
}

func (e *machinesError) Error() string {
	var parts []string
	for _, list := range []struct {
		verb string
		refs []object.Ref
	}{{"created", e.Came}, {"deleted", e.Gone}} {
		if len(list.refs) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s, the first: %s", len(list.refs), list.verb,
				list.refs[0]))
		}
	}
	return "Machines came or went after the release: " + strings.Join(parts, "; ")
}

// Hint says what to do next.
func (e *machinesError) Hint() string {
	return "check the controllers of the target at once: something replaces Machines. Pause the " +
		"workload cluster (spec.paused: true) until you know what. When the Machines are what you " +
		"want, accept the workload cluster and resume the operation"
}

// HintKey names the command that accepts a unit.
func (e *machinesError) HintKey() object.HintKey { return object.HintAccept }

// liveMachine is what the metadata of a Machine says.
type liveMachine struct {
	cluster  string // by its label
	uid      string
	deleting bool
	owner    object.Ref // the MachineSet, MachinePool or control plane that controls it
}

// liveMachines lists the Machines of workload clusters by their metadata: of one, or, without a
// name, of all in the namespace.
func liveMachines(ctx context.Context, reader Reader, k kube.Kind, namespace, cluster string) (
	map[object.Ref]liveMachine, error) {
	selector := capi.LabelClusterName
	if cluster != "" {
		selector += "=" + cluster
	}
	machines := map[object.Ref]liveMachine{}
	_, err := reader.List(ctx, k, kube.ListOptions{Namespace: namespace, Labels: selector,
		Metadata: true}, func(raw []byte) error {
		meta := gjson.GetBytes(raw, "metadata")
		m := liveMachine{uid: meta.Get("uid").String(),
			cluster:  meta.Get("labels").Map()[capi.LabelClusterName].String(),
			deleting: meta.Get("deletionTimestamp").Exists()}
		for _, o := range meta.Get("ownerReferences").Array() {
			if group, _, ok := strings.Cut(o.Get("apiVersion").String(), "/"); ok &&
				o.Get("controller").Bool() {
				m.owner = object.Ref{Group: group, Kind: o.Get("kind").String(), Namespace: namespace,
					Name: o.Get("name").String()}
			}
		}
		machines[object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace,
			Name: meta.Get("name").String()}] = m
		return nil
	})
	return machines, err
}

// compareMachines compares the Machines of a unit with those of the plan. It returns a
// *machinesError when one was created or deleted since, unless an autoscaler asked for it.
func (r *run) compareMachines(ctx context.Context, u Unit) error {
	key, err := object.ParseKey(u.Name)
	if err != nil {
		return err
	}
	k, ok := kube.FindKind(r.Kinds, capi.Machine)
	if !ok {
		return nil
	}
	live, err := liveMachines(ctx, r.Reader, k, key.Namespace, key.Name)
	if err != nil {
		return fmt.Errorf("list Machines of %s: %w", u.Name, err)
	}
	return r.compareListed(ctx, u, k, live)
}

func (r *run) compareListed(ctx context.Context, u Unit, k kube.Kind,
	live map[object.Ref]liveMachine) error {
	changed, err := r.machineChanges(ctx, u, k, live)
	if err != nil || len(changed.Came)+len(changed.Gone) == 0 {
		return err
	}
	return changed
}

func (r *run) machineChanges(ctx context.Context, u Unit, k kube.Kind,
	live map[object.Ref]liveMachine) (*machinesError, error) {
	gone, came := map[object.Ref][]object.Ref{}, map[object.Ref][]object.Ref{} // by owner
	planned := map[object.Ref]bool{}
	for _, o := range u.Objects {
		if o.GroupKind() != capi.Machine || o.Action == Skip {
			continue
		}
		planned[o.Ref] = true
		is, err := r.isGone(ctx, k, o.Ref, live)
		if err != nil {
			return nil, err
		}
		if is {
			owner := replicated(o)
			gone[owner] = append(gone[owner], o.Ref)
		}
	}
	for ref, m := range live {
		if !planned[ref] && u.OtherMachines[ref.Name] != m.uid {
			came[m.owner] = append(came[m.owner], ref)
		}
	}
	changed := &machinesError{}
	var err error
	if changed.Came, err = r.notAutoscaled(ctx, u, came, 1); err != nil {
		return nil, err
	}
	changed.Gone, err = r.notAutoscaled(ctx, u, gone, -1)
	return changed, err
}

// replicated returns the owner of a Machine of the plan, if it has one only: a MachineSet.
func replicated(o Object) object.Ref {
	if len(o.Owners) != 1 {
		return object.Ref{}
	}
	return o.Owners[0]
}

// notAutoscaled returns the Machines, sorted, whose owners have not grown (sign 1) or shrunk (sign
// -1) by as many replicas on behalf of an autoscaler.
func (r *run) notAutoscaled(ctx context.Context, u Unit, byOwner map[object.Ref][]object.Ref,
	sign int64) ([]object.Ref, error) {
	var out []object.Ref
	for owner, refs := range byOwner {
		grown, err := r.autoscaled(ctx, u, owner)
		if err != nil {
			return nil, err
		}
		if sign*grown < int64(len(refs)) {
			out = append(out, refs...)
		}
	}
	slices.SortFunc(out, object.CompareRefs)
	return out, nil
}

// isGone reports whether a Machine of the plan was deleted or is being deleted. One that has lost
// its label is not in the list, and is read.
func (r *run) isGone(ctx context.Context, k kube.Kind, ref object.Ref,
	live map[object.Ref]liveMachine) (bool, error) {
	m, listed := live[ref]
	if !listed {
		u, err := r.Reader.Get(ctx, k, ref.Namespace, ref.Name)
		if err != nil {
			return apierrors.IsNotFound(err), client(err)
		}
		m = liveMachine{uid: string(u.GetUID()), deleting: u.GetDeletionTimestamp() != nil}
	}
	return m.deleting || m.uid != r.uid(ref), nil
}

// client returns err unless it says that an object is not there.
func client(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// replicas is the field of an owner of Machines that an autoscaler writes.
const replicas = "spec.replicas"

// autoscaled returns by how many replicas an owner of Machines has grown since the snapshot, if an
// autoscaler writes its replicas: they are volatile. It is 0 for any other owner.
func (r *run) autoscaled(ctx context.Context, u Unit, owner object.Ref) (int64, error) {
	i := slices.IndexFunc(u.Objects, func(o Object) bool {
		return o.Ref == owner && o.Action != Skip
	})
	if i < 0 {
		return 0, nil
	}
	source, err := decodeObject(r.Rows, r.Contents, owner)
	switch {
	case errors.Is(err, snapshot.ErrNotLoaded):
		return r.grownFromZero(ctx, u, owner)
	case err != nil || !r.Rows.Row(owner.GroupKind()).IsVolatileField(source.Object, replicas):
		return 0, err
	}
	live, err := r.Reader.Get(ctx, r.kinds[owner.GroupKind()], owner.Namespace, owner.Name)
	if err != nil {
		return 0, client(err)
	}
	return replicasOf(live) - replicasOf(source), nil
}

// grownFromZero is autoscaled for an owner whose contents are not loaded, or were dropped: when it
// had Machines in the snapshot an earlier run had them, and what came or went is named.
func (r *run) grownFromZero(ctx context.Context, u Unit, owner object.Ref) (int64, error) {
	if slices.ContainsFunc(u.Objects, func(o Object) bool {
		return o.GroupKind() == capi.Machine && slices.Contains(o.Owners, owner)
	}) {
		return 0, nil
	}
	live, err := r.Reader.Get(ctx, r.kinds[owner.GroupKind()], owner.Namespace, owner.Name)
	if err != nil || !r.Rows.Row(owner.GroupKind()).IsVolatileField(live.Object, replicas) {
		return 0, client(err)
	}
	return replicasOf(live), nil
}

func replicasOf(u *unstructured.Unstructured) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	return n
}

// findOtherMachines finds the Machines of workload clusters that are on the target already and are
// not in the snapshot: they are no sign that a controller replaces Machines.
func (p *planner) findOtherMachines(ctx context.Context) error {
	k, ok := kube.FindKind(p.Kinds, capi.Machine)
	if !ok {
		return nil
	}
	p.others = map[string]map[string]string{}
	for _, n := range p.nodes {
		if n.GroupKind() != capi.Cluster || p.existing[n.Ref] == "" {
			continue
		}
		live, err := liveMachines(ctx, p.Reader, k, n.Namespace, n.Name)
		if err != nil {
			return fmt.Errorf("list Machines of %s: %w", n.Key(), err)
		}
		others := map[string]string{}
		for ref, m := range live {
			if p.Snapshot.Graph.Node(ref) == nil {
				others[ref.Name] = m.uid
			}
		}
		if len(others) > 0 {
			p.others[n.Unit] = others
		}
	}
	return nil
}
