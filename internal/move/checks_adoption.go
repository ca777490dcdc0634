package move

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

var (
	machineSet        = object.GroupKind{Group: capi.GroupCore, Kind: "MachineSet"}
	machineDeployment = object.GroupKind{Group: capi.GroupCore, Kind: "MachineDeployment"}
)

// adopter is an object whose controller adopts what its selector matches and nothing controls
// (cluster-api v1.14.2): a MachineDeployment, MachineSets (core/reconcilers/machinedeployment,
// getAndAdoptMachineSetsForDeployment); a MachineSet, Machines (core/reconcilers/machineset,
// getAndAdoptMachinesForMachineSet); a kubeadm control plane, Machines of the control plane of its
// Cluster (util/collections, AdoptableControlPlaneMachines). Afterwards it deletes Machines when it
// has too many. None of them adopts an object that has a controller, also when its selector matches
// (https://github.com/kubernetes-sigs/cluster-api/issues/6283), and a copy has the controller that
// the object has on the source.
type adopter struct {
	ref      object.Ref
	adopts   object.GroupKind
	selector labels.Selector
	target   bool // it is on the target, and not moved
}

// orphan is a Machine or a MachineSet that nothing controls.
type orphan struct {
	node   *graph.Node
	labels labels.Set
}

// What the target would adopt. While a Cluster is paused, nothing adopts its Machines, on the
// source and on the target alike; an object that is on the target does not wait for the release.
var (
	wouldAdopt = trouble{severity: object.Error, code: object.CodeWouldAdopt,
		what: "selectors match objects that nothing controls",
		means: "that one would adopt it on the target after the release, and remove Machines when it " +
			"then has too many",
		hint: "change the labels of the object or the selector, or set its owner reference"}
	wouldAdoptLater = trouble{severity: object.Warning, code: object.CodeWouldAdopt,
		what: wouldAdopt.what,
		means: "that one adopts it once somebody unpauses the Cluster, and removes Machines when it " +
			"then has too many",
		hint: wouldAdopt.hint}
	targetAdopts = trouble{severity: object.Error, code: object.CodeWouldAdopt,
		what: "selectors of objects of the target match objects that nothing controls",
		means: "that one would adopt it as soon as it is copied, and remove Machines when it then has " +
			"too many",
		hint: wouldAdopt.hint}
)

// adoption is what a move brings together in the namespaces of the target.
type adoption struct {
	adopters []adopter
	orphans  []orphan
}

// checkAdoption reports what a controller of the target would adopt, although it does not belong to
// it: an orphan among what is moved. Orphans that are on the target already are not searched for:
// the webhook of Cluster API adds the name of its Cluster to the selector of a MachineDeployment
// (core/webhooks/admission/machinedeployment.go), and one whose Cluster is on the target is an
// error already.
func checkAdoption(ctx context.Context, c *checker) error {
	var a adoption
	kinds := []object.GroupKind{capi.Machine, machineSet, machineDeployment, capi.KubeadmControlPlane}
	owned := func(n *graph.Node) bool { return slices.Contains(kinds, n.GroupKind()) }
	err := c.each(owned, func(n *graph.Node, o gjson.Result) {
		if slices.Contains(kinds[:2], n.GroupKind()) && !c.controlled(n, o) {
			a.orphans = append(a.orphans, orphan{n, capi.LabelsOf(o)})
		}
		a.addAdopter(n.Ref, o, false)
	})
	if err != nil || len(a.orphans) == 0 {
		return err
	}
	if err := c.adoptersOnTarget(ctx, &a); err != nil {
		return err
	}
	paused := map[string]bool{} // units
	for _, n := range c.nodes {
		if isCluster(n) {
			paused[n.Unit] = n.Paused
		}
	}
	c.reportAdoptions(a, paused)
	return nil
}

// reportAdoptions reports the orphans that a selector matches.
func (c *checker) reportAdoptions(a adoption, paused map[string]bool) {
	now, later, onTarget := wouldAdopt.group(), wouldAdoptLater.group(), targetAdopts.group()
	for _, o := range a.orphans {
		i := slices.IndexFunc(a.adopters, func(by adopter) bool {
			return by.adopts == o.node.GroupKind() && by.ref.Namespace == o.node.Namespace &&
				by.selector.Matches(o.labels)
		})
		if i < 0 {
			continue
		}
		g := now
		switch by := a.adopters[i]; {
		case by.target:
			g = onTarget
		case paused[o.node.Unit]:
			g = later
		}
		g.note(o.node, "is matched by "+a.adopters[i].ref.Kind+" "+a.adopters[i].ref.Name)
	}
	for _, g := range []*group{now, later, onTarget} {
		g.report(c)
	}
}

// controlled reports whether the copy of an object has a controller among its owners.
func (c *checker) controlled(n *graph.Node, o gjson.Result) bool {
	dropped := map[string]bool{} // UIDs
	for _, owner := range n.Owners {
		dropped[owner.UID] = slices.Contains(c.spec.DropOwners, owner.Ref)
	}
	return slices.ContainsFunc(o.Get("metadata.ownerReferences").Array(),
		func(owner gjson.Result) bool {
			return owner.Get("controller").Bool() && !dropped[owner.Get("uid").String()]
		})
}

// addAdopter adds an object that adopts others. A selector that is empty or cannot be read adopts
// nothing: its controller ends with an error.
func (a *adoption) addAdopter(ref object.Ref, o gjson.Result, target bool) {
	by := adopter{ref: ref, target: target}
	switch ref.GroupKind() {
	case machineDeployment:
		by.adopts = machineSet
	case machineSet:
		by.adopts = capi.Machine
	case capi.KubeadmControlPlane:
		by.adopts = capi.Machine
		by.selector = labels.SelectorFromSet(labels.Set{"cluster.x-k8s.io/control-plane": "",
			capi.LabelClusterName: clusterOf(o)})
		a.adopters = append(a.adopters, by)
		return
	default:
		return
	}
	var selector metav1.LabelSelector
	if err := json.Unmarshal([]byte(o.Get("spec.selector").Raw), &selector); err != nil {
		return
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil || parsed.Empty() {
		return
	}
	by.selector = parsed
	a.adopters = append(a.adopters, by)
}

// clusterOf returns the name of the Cluster of a control plane: its label, else its owner.
func clusterOf(o gjson.Result) string {
	if name := capi.LabelsOf(o)[capi.LabelClusterName]; name != "" {
		return name
	}
	for _, owner := range o.Get("metadata.ownerReferences").Array() {
		if owner.Get("kind").String() == capi.Cluster.Kind {
			return owner.Get("name").String()
		}
	}
	return ""
}

// adoptersOnTarget adds the MachineDeployments and MachineSets that are on the target in the
// namespaces of the orphans.
func (c *checker) adoptersOnTarget(ctx context.Context, a *adoption) error {
	moved, namespaces := map[object.Ref]bool{}, map[string]bool{}
	for _, by := range a.adopters {
		moved[by.ref] = true
	}
	for _, o := range a.orphans {
		namespaces[o.node.Namespace] = true
	}
	for _, gk := range []object.GroupKind{machineDeployment, machineSet} {
		k, served := kube.FindKind(c.Target.Kinds, gk)
		if !served {
			continue
		}
		for namespace := range namespaces {
			_, err := c.Target.Reader.List(ctx, k, kube.ListOptions{Namespace: namespace},
				func(raw []byte) error {
					o := gjson.ParseBytes(raw)
					ref := object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: namespace,
						Name: o.Get("metadata.name").String()}
					if !moved[ref] {
						a.addAdopter(ref, o, true)
					}
					return nil
				})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
