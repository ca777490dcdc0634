package gitops

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

// State is what a tool does with the objects of an owner.
type State string

// The states of an owner.
const (
	Active    State = "active"
	Suspended State = "suspended"
	// Absent: objects name the owner, and this management cluster does not have it.
	Absent State = "absent"
	// Passive: no controller applies it again. It is so for a release that people made with Helm.
	Passive State = "passive"
)

// Owner is an owner of objects, or a parent of one.
type Owner struct {
	Tool Tool
	// Ref names it. Its kind is empty when objects only say which tool writes them, and its
	// namespace when they do not say where it is.
	object.Ref
	State State
	// Objects are the objects that it applies itself, sorted. A parent may have none.
	Objects []object.Ref
	// Units are the workload clusters to which these belong, sorted.
	Units []string
	// Parents apply the owner. Ends are those of them that are active and end its suspension, and
	// MayEnd those that are active and end it if Git states the switch.
	Parents, Ends, MayEnd []*Owner
	// Command suspends it; empty when no command does.
	Command string

	found    *found // nil when absent
	resolved bool   // its parents are known
	visiting bool   // guards against owners that apply each other
	depth    int    // the longest way to a root
}

// Name returns what people call the owner.
func (o *Owner) Name() string {
	name := o.Ref.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	switch {
	case o.Kind == "":
		return "an owner of " + string(o.Tool)
	case name == "":
		return "a " + o.Kind
	}
	return o.Kind + " " + name
}

// Holds reports whether the owner is suspended, and no parent ends that.
func (o *Owner) Holds() bool { return o.State == Suspended && len(o.Ends) == 0 }

// Chain returns the owner and its parents up to the roots: roots first.
func (o *Owner) Chain() []*Owner {
	var chain []*Owner
	seen := map[*Owner]bool{}
	var visit func(o *Owner)
	visit = func(o *Owner) {
		if seen[o] {
			return
		}
		seen[o] = true
		for _, p := range o.Parents {
			visit(p)
		}
		chain = append(chain, o)
	}
	visit(o)
	return chain
}

// found is an owner that a management cluster has.
type found struct {
	object.Ref
	row       *kindRow
	claims    []claim
	suspended bool
	// switchedBy are the field managers that own the switch.
	switchedBy []string
	// release is the Helm release that it makes, "namespace/name"; empty when it makes none.
	release string
	// elsewhere: it applies to another cluster, whose objects may have the same names.
	elsewhere bool
	// inventory is what it says that it applies, of the objects that are searched for. complete:
	// it has an inventory.
	inventory []object.Ref
	complete  bool
}

// read reads an owner. wanted reports whether an object of an inventory is searched for.
func (row *kindRow) read(raw []byte, wanted func(object.Ref) bool) *found {
	root := gjson.ParseBytes(raw)
	meta := root.Get("metadata")
	f := &found{row: row, Ref: refOf(row.GroupKind, value(meta, "namespace"), value(meta, "name"))}
	f.claims = claimsOf(f.Ref, meta)
	f.suspended = row.isSuspended(root)
	f.switchedBy = managersOfField(meta, row.path)
	f.release = releaseOf(row.GroupKind, root)
	f.elsewhere = appliesElsewhere(row.GroupKind, root)
	if f.elsewhere {
		return f
	}
	for _, ref := range inventoryOf(row.GroupKind, root) {
		f.complete = true
		if wanted(ref) {
			f.inventory = append(f.inventory, ref)
		}
	}
	slices.SortFunc(f.inventory, object.CompareRefs)
	return f
}

// isSuspended reports whether the switch of an owner is set and nothing is in progress. An
// operation of Argo CD that was asked for runs although automated synchronization is off.
func (row *kindRow) isSuspended(root gjson.Result) bool {
	v := root.Get(gjsonPath(row.path))
	if row.GroupKind == application {
		return !v.Exists() && !root.Get("operation").Exists() || v.Get("enabled").Raw == "false" ||
			value(root.Get("metadata.annotations"), "argocd.argoproj.io/skip-reconcile") == "true"
	}
	if v.Value() == row.suspends {
		return true
	}
	for _, other := range row.also {
		if v.Value() == other {
			return true
		}
	}
	return false
}

// busy reports whether the tool is applying the objects of an owner right now.
func busy(gk object.GroupKind, root gjson.Result) bool {
	if gk == application {
		return root.Get("operation").Exists() ||
			root.Get("status.operationState.phase").String() == "Running"
	}
	// A Flux controller sets Reconciling while it works, and removes the condition at its end
	// (fluxcd/pkg, apis/meta/conditions.go).
	return root.Get(`status.conditions.#(type=="Reconciling").status`).String() == "True"
}

func gjsonPath(path []string) string {
	escaped := make([]string, len(path))
	for i, part := range path {
		escaped[i] = gjson.Escape(part)
	}
	return strings.Join(escaped, ".")
}

// managersOfField returns the field managers that own a field.
func managersOfField(meta gjson.Result, path []string) (names []string) {
	keys := make([]string, len(path))
	for i, part := range path {
		keys[i] = gjson.Escape("f:" + part)
	}
	meta.Get("managedFields").ForEach(func(_, entry gjson.Result) bool {
		if entry.Get("fieldsV1." + strings.Join(keys, ".")).Exists() {
			names = append(names, strings.Clone(entry.Get("manager").String()))
		}
		return true
	})
	return names
}

// releaseOf returns the Helm release that an owner makes.
func releaseOf(gk object.GroupKind, root gjson.Result) string {
	namespace, name := root.Get("metadata.namespace").String(), root.Get("metadata.name").String()
	switch gk {
	case fluxHelmRelease:
		// fluxcd/helm-controller v1.6.3, api/v2/helmrelease_types.go (GetReleaseName). Names that it
		// shortens are found by the labels of the objects.
		target := root.Get("spec.targetNamespace").String()
		release := root.Get("spec.releaseName").String()
		switch {
		case release == "" && target != "":
			release = target + "-" + name
		case release == "":
			release = name
		}
		if target == "" {
			target = namespace
		}
		return target + "/" + release
	case bundleDeployment:
		release, _, _ := strings.Cut(root.Get("status.release").String(), ":")
		return strings.Clone(release)
	case azimuthCluster:
		return namespace + "/" + name
	}
	return ""
}

// appliesElsewhere reports whether an owner applies to another cluster than the one in which it is.
func appliesElsewhere(gk object.GroupKind, root gjson.Result) bool {
	switch gk {
	case kustomization, fluxHelmRelease:
		return root.Get("spec.kubeConfig").Exists()
	case application:
		server := root.Get("spec.destination.server").String()
		return server != "https://kubernetes.default.svc" &&
			root.Get("spec.destination.name").String() != "in-cluster"
	}
	return false
}

// inventoryOf returns the objects that an owner says that it applies.
func inventoryOf(gk object.GroupKind, root gjson.Result) (refs []object.Ref) {
	switch gk {
	case kustomization, fluxHelmRelease, resourceSet, fluxInstance:
		// "NAMESPACE_NAME_GROUP_KIND"; a colon in a name is written "__" (fluxcd/cli-utils,
		// pkg/object/objmetadata.go).
		root.Get("status.inventory.entries.#.id").ForEach(func(_, id gjson.Result) bool {
			if part := strings.Split(strings.ReplaceAll(id.String(), "__", ":"), "_"); len(part) == 4 {
				refs = append(refs, object.Ref{Namespace: part[0], Name: part[1], Group: part[2],
					Kind: part[3]})
			}
			return true
		})
	case application:
		root.Get("status.resources").ForEach(func(_, r gjson.Result) bool {
			refs = append(refs, object.Ref{Group: r.Get("group").String(), Kind: r.Get("kind").String(),
				Namespace: r.Get("namespace").String(), Name: r.Get("name").String()})
			return true
		})
	case bundleDeployment:
		root.Get("status.resources").ForEach(func(_, r gjson.Result) bool {
			group, _, grouped := strings.Cut(r.Get("apiVersion").String(), "/")
			if !grouped {
				group = ""
			}
			refs = append(refs, object.Ref{Group: group, Kind: r.Get("kind").String(),
				Namespace: r.Get("namespace").String(), Name: r.Get("name").String()})
			return true
		})
	}
	for i := range refs {
		refs[i] = clone(refs[i])
	}
	return refs
}

// clone copies the strings of a ref out of the bytes of a list.
func clone(r object.Ref) object.Ref {
	return object.Ref{Group: strings.Clone(r.Group), Kind: strings.Clone(r.Kind),
		Namespace: strings.Clone(r.Namespace), Name: strings.Clone(r.Name)}
}
