package capi

import (
	"strings"
	"unique"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

// In returns the objects that a spec names in the field. namespace is that of the object; scoped
// reports whether a kind is namespaced. The refs share no memory with spec.
func (r Reference) In(spec gjson.Result, namespace string,
	scoped func(object.GroupKind) bool) []object.Ref {
	if ns := value(spec, r.Namespace); r.Namespace != "" && ns.String() != "" {
		namespace = shared(ns.String())
	}
	var refs []object.Ref
	var add func(v gjson.Result)
	add = func(v gjson.Result) {
		switch {
		case v.IsArray():
			v.ForEach(func(_, e gjson.Result) bool { add(e); return true })
		case v.IsObject():
			if ref := RefOf(v, r.To, namespace, scoped); ref.Name != "" && ref.Kind != "" {
				refs = append(refs, ref)
			}
		case v.Type == gjson.String:
			name := v.Str
			if r.AfterDot {
				_, name, _ = strings.Cut(name, ".")
			}
			if name != "" {
				refs = append(refs, inScope(object.Ref{Group: r.To.Group, Kind: r.To.Kind,
					Namespace: namespace, Name: strings.Clone(name)}, scoped))
			}
		}
	}
	add(value(spec, r.Path))
	return refs
}

// value returns the value of a spec at a path that begins with "spec.".
func value(spec gjson.Result, path string) gjson.Result {
	return spec.Get(strings.TrimPrefix(path, "spec."))
}

// RefOf reads a reference {apiGroup or apiVersion, kind, namespace, name}. to and namespace stand
// for what it does not say.
func RefOf(v gjson.Result, to object.GroupKind, namespace string,
	scoped func(object.GroupKind) bool) object.Ref {
	r := object.Ref{Group: to.Group, Kind: to.Kind, Namespace: namespace}
	if name := v.Get("name"); name.Type == gjson.String {
		r.Name = strings.Clone(name.Str)
	}
	if k := v.Get("kind"); k.Exists() {
		r.Kind, r.Group = shared(k.String()), ""
	}
	if g := v.Get("apiGroup"); g.Exists() {
		r.Group = shared(g.String())
	} else if a := v.Get("apiVersion"); a.Exists() {
		group, _, ok := strings.Cut(a.String(), "/")
		if !ok {
			group = ""
		}
		r.Group = shared(group)
	}
	if ns := v.Get("namespace"); ns.String() != "" {
		r.Namespace = shared(ns.String())
	}
	return inScope(r, scoped)
}

// shared copies a string of an object's bytes that many refs have. They have it in memory once.
func shared(s string) string { return unique.Make(s).Value() }

func inScope(r object.Ref, scoped func(object.GroupKind) bool) object.Ref {
	if !scoped(r.GroupKind()) {
		r.Namespace = ""
	}
	return r
}
