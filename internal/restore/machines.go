package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
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
	changed := &machinesError{}
	planned := map[object.Ref]bool{}
	for _, o := range u.Objects {
		if o.GroupKind() != capi.Machine || o.Action == Skip {
			continue
		}
		planned[o.Ref] = true
		gone, err := r.isGone(ctx, k, o.Ref, live)
		if err != nil {
			return nil, err
		}
		if gone {
			changed.Gone = append(changed.Gone, o.Ref)
		}
	}
	came := map[object.Ref][]object.Ref{} // by what controls them
	for ref, m := range live {
		if !planned[ref] && u.OtherMachines[ref.Name] != m.uid {
			came[m.owner] = append(came[m.owner], ref)
		}
	}
	for owner, refs := range came {
		autoscaled, err := r.scaledUp(ctx, u, owner, len(refs))
		if err != nil {
			return nil, err
		}
		if !autoscaled {
			changed.Came = append(changed.Came, refs...)
		}
	}
	slices.SortFunc(changed.Came, object.CompareRefs)
	return changed, nil
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

// scaledUp reports whether new Machines of an owner are those that an autoscaler asked for: its
// replicas are volatile, and have grown by at least as many.
func (r *run) scaledUp(ctx context.Context, u Unit, owner object.Ref, came int) (bool, error) {
	const replicas = "spec.replicas"
	i := slices.IndexFunc(u.Objects, func(o Object) bool {
		return o.Ref == owner && o.Action != Skip
	})
	if i < 0 {
		return false, nil
	}
	source, err := decodeObject(r.Rows, r.Contents, owner)
	if err != nil || !r.Rows.Row(owner.GroupKind()).IsVolatileField(source.Object, replicas) {
		return false, err
	}
	live, err := r.Reader.Get(ctx, r.kinds[owner.GroupKind()], owner.Namespace, owner.Name)
	if err != nil {
		return false, client(err)
	}
	return replicasOf(live)-replicasOf(source) >= int64(came), nil
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
