package gitops

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Lister lists objects of a management cluster. It cannot write.
type Lister interface {
	List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func(raw []byte) error) (
		kube.ListResult, error)
}

// Search finds the owners of objects. Add the objects, then call Owners.
type Search struct {
	objects map[object.Ref]searched
	order   []object.Ref
}

// searched is an object whose owners are searched for.
type searched struct {
	unit   string
	claims []claim
}

// NewSearch returns a search without objects.
func NewSearch() *Search { return &Search{objects: map[object.Ref]searched{}} }

// Add adds an object, of which it reads the metadata. unit is its workload cluster, empty when it
// belongs to none.
func (s *Search) Add(ref object.Ref, unit string, raw []byte) {
	s.objects[ref] = searched{unit: unit, claims: claimsOf(ref, gjson.GetBytes(raw, "metadata"))}
	s.order = append(s.order, ref)
}

// Unread is a kind whose owners could not be searched for.
type Unread struct {
	Kind object.GroupKind
	Err  error
}

// Result is what a search found.
type Result struct {
	// Owners are those of the objects, without their parents, sorted by name.
	Owners []*Owner
	Unread []Unread
}

// Owners lists the owners of a management cluster that serves these kinds, and finds those of the
// objects. A kind that cannot be listed is in the result; the error is that of a context that
// ended.
func (s *Search) Owners(ctx context.Context, from Lister, kinds []kube.Kind) (Result, error) {
	r := resolver{search: s, found: map[object.Ref]*found{}, owners: map[object.Ref]*Owner{},
		inventories: map[object.Ref][]*found{}, releases: map[string][]*found{}}
	var result Result
	for i := range kindRows {
		row := &kindRows[i]
		k, served := kube.FindKind(kinds, row.GroupKind)
		if !row.listed() || !served {
			continue
		}
		_, err := from.List(ctx, k, kube.ListOptions{}, func(raw []byte) error {
			r.add(row.read(raw, r.wanted))
			return nil
		})
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		if err != nil {
			result.Unread = append(result.Unread, Unread{Kind: row.GroupKind,
				Err: kube.SafeError(row.GroupKind, err)})
		}
	}
	result.Owners = r.resolve()
	return result, nil
}

// resolver finds the owners of objects among those that were listed.
type resolver struct {
	search      *Search
	found       map[object.Ref]*found
	inventories map[object.Ref][]*found // by an object in them
	releases    map[string][]*found     // by the Helm release that they make
	owners      map[object.Ref]*Owner
}

// wanted reports whether an object of an inventory is one that is searched for, or an owner itself.
func (r *resolver) wanted(ref object.Ref) bool {
	_, ok := r.search.objects[ref]
	return ok || rowOf(ref.GroupKind()) != nil
}

func (r *resolver) add(f *found) {
	r.found[f.Ref] = f
	for _, ref := range f.inventory {
		r.inventories[ref] = append(r.inventories[ref], f)
	}
	if f.release != "" {
		r.releases[f.release] = append(r.releases[f.release], f)
	}
}

// resolve returns the owners of all objects. An owner that is itself one of the objects is left
// out: what moves it also pauses it.
func (r *resolver) resolve() []*Owner {
	units := map[*Owner]map[string]bool{}
	for _, ref := range r.search.order {
		o := r.search.objects[ref]
		for _, owner := range r.ownersOf(ref, o.claims) {
			if _, moves := r.search.objects[owner.Ref]; moves {
				continue
			}
			owner.Objects = append(owner.Objects, ref)
			if units[owner] == nil {
				units[owner] = map[string]bool{}
			}
			if o.unit != "" {
				units[owner][o.unit] = true
			}
		}
	}
	owners := slices.Collect(maps.Keys(units))
	for _, o := range owners {
		o.Units = slices.Sorted(maps.Keys(units[o]))
		slices.SortFunc(o.Objects, object.CompareRefs)
		r.parents(o)
	}
	slices.SortFunc(owners, func(a, b *Owner) int {
		return cmp.Or(cmp.Compare(a.Tool, b.Tool), object.CompareRefs(a.Ref, b.Ref))
	})
	return owners
}

// ownersOf returns the owners of one object, each once.
func (r *resolver) ownersOf(ref object.Ref, claims []claim) []*Owner {
	var owners []*Owner
	tools := map[Tool]bool{} // of the owners that are known by name
	add := func(o *Owner) {
		tools[o.Tool] = true
		if !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	for _, f := range r.inventories[ref] {
		if f.Ref != ref {
			add(r.owner(f))
		}
	}
	for _, c := range claims {
		if c.Name != "" && c.Ref != ref {
			for _, o := range r.claimed(ref, c) {
				add(o)
			}
		}
	}
	for _, c := range claims { // those that only name a tool
		if c.Name == "" && !tools[c.tool] {
			add(r.absent(c))
		}
	}
	return dropReleases(owners)
}

// dropReleases leaves out a Helm release that a tool makes, since the tool is what applies it.
func dropReleases(owners []*Owner) []*Owner {
	made := slices.ContainsFunc(owners, func(o *Owner) bool { return makesReleases(o) })
	return slices.DeleteFunc(owners, func(o *Owner) bool {
		return made && o.State == Passive
	})
}

// makesReleases reports whether objects of an owner may be those of a Helm release.
func makesReleases(o *Owner) bool {
	switch o.GroupKind() {
	case fluxHelmRelease, bundleDeployment, azimuthCluster, magnumCluster:
		return true
	}
	return false
}

// claimed returns the owners that a claim names.
func (r *resolver) claimed(ref object.Ref, c claim) []*Owner {
	if c.GroupKind() == helmRelease {
		return r.ofRelease(c)
	}
	var owners []*Owner
	for _, f := range r.named(c.Ref) {
		_, listed := slices.BinarySearchFunc(f.inventory, ref, object.CompareRefs)
		if c.weak && (f.elsewhere || f.complete && !listed) {
			continue
		}
		owners = append(owners, r.owner(f))
	}
	if len(owners) > 0 || c.weak {
		return owners
	}
	return []*Owner{r.absent(c)}
}

// named returns the owners with a name, in one namespace or in any.
func (r *resolver) named(ref object.Ref) []*found {
	if ref.Namespace != "" {
		if f := r.found[ref]; f != nil {
			return []*found{f}
		}
		return nil
	}
	var all []*found
	for _, f := range r.found {
		if f.Ref.Name == ref.Name && f.GroupKind() == ref.GroupKind() {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *found) int { return object.CompareRefs(a.Ref, b.Ref) })
	return all
}

// ofRelease returns the owners that make a Helm release, or the release itself when people made it.
func (r *resolver) ofRelease(c claim) []*Owner {
	var owners []*Owner
	for _, f := range r.releases[c.Namespace+"/"+c.Name] {
		if !f.elsewhere {
			owners = append(owners, r.owner(f))
		}
	}
	if len(owners) > 0 {
		return owners
	}
	o := r.absent(c)
	o.State = Passive
	return []*Owner{o}
}

// owner returns the owner for one that was found.
func (r *resolver) owner(f *found) *Owner {
	o := r.owners[f.Ref]
	if o == nil {
		o = &Owner{Tool: f.row.tool, Ref: f.Ref, State: Active, found: f,
			Command: commandFor(f.row.command, f.Ref)}
		if f.suspended {
			o.State = Suspended
		}
		r.owners[f.Ref] = o
	}
	return o
}

// absent returns the owner for a claim that names none of those that were found.
func (r *resolver) absent(c claim) *Owner {
	key := c.Ref
	if key.Kind == "" {
		key.Kind = string(c.tool)
	}
	o := r.owners[key]
	if o == nil {
		o = &Owner{Tool: c.tool, Ref: c.Ref, State: Absent, resolved: true}
		if row := rowOf(c.GroupKind()); row != nil && c.Name != "" {
			o.Command = commandFor(row.command, c.Ref)
		}
		r.owners[key] = o
	}
	return o
}
