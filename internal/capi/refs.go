package capi

import (
	"strings"
	"unique"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Fields are the parts of an object that its References read.
type Fields struct {
	Spec, Status, Annotations gjson.Result
	Namespace, Name           string
	// Controller is the namespace of the controllers of its kind; empty when the source does not say
	// it.
	Controller string
}

// ReadsStatus reports whether a Reference of the row reads the status.
func (r *Row) ReadsStatus() bool {
	for i := range r.Refs {
		if strings.HasPrefix(r.Refs[i].Path, "status.") {
			return true
		}
	}
	return false
}

// RefsInSpec reports whether all References of the row read the spec, so that none changes without
// the generation of the object.
func (r *Row) RefsInSpec() bool {
	for i := range r.Refs {
		if !strings.HasPrefix(r.Refs[i].Path, "spec.") {
			return false
		}
	}
	return true
}

// In returns the objects that an object with these fields names in the reference. scoped reports
// whether a kind is namespaced. The refs share no memory with the fields.
func (r Reference) In(f Fields, scoped func(object.GroupKind) bool) []object.Ref {
	namespace := f.Namespace
	switch {
	case r.Controller != "" && f.Controller != "":
		namespace = shared(f.Controller)
	case r.Controller != "":
		namespace = r.Controller
	case r.Namespace != "":
		if ns := f.at(r.Namespace).String(); ns != "" {
			namespace = shared(ns)
		}
	}
	named := func(name string) []object.Ref {
		if ref, ok := r.named(name, namespace); ok {
			return []object.Ref{inScope(ref, scoped)}
		}
		return nil
	}
	switch r.Path {
	case "":
		return named(r.Name)
	case ownName:
		return named(f.Name)
	}
	var refs []object.Ref
	var add func(v gjson.Result)
	add = func(v gjson.Result) {
		switch {
		case v.IsArray():
			v.ForEach(func(_, e gjson.Result) bool { add(e); return true })
		case v.IsObject():
			if ref := r.of(v, namespace, scoped); ref.Name != "" && ref.Kind != "" {
				refs = append(refs, ref)
			}
		case v.Type == gjson.String:
			refs = append(refs, named(v.Str)...)
		}
	}
	add(f.at(r.Path))
	return refs
}

// named returns the object that a value which is a name alone stands for; ok is false when it names
// none.
func (r Reference) named(name, namespace string) (ref object.Ref, ok bool) {
	if r.AfterDot {
		_, name, _ = strings.Cut(name, ".")
	}
	if r.Qualified {
		if namespace, name, ok = strings.Cut(name, "/"); !ok || namespace == "" {
			return object.Ref{}, false
		}
		namespace = shared(namespace)
	}
	if name == "" || r.To.Kind == "" {
		return object.Ref{}, false
	}
	return object.Ref{Group: r.To.Group, Kind: r.To.Kind, Namespace: namespace,
		Name: strings.Clone(name + r.Suffix)}, true
}

// of reads a reference {type or kind, name}.
func (r Reference) of(v gjson.Result, namespace string,
	scoped func(object.GroupKind) bool) object.Ref {
	to := r.To
	if t := v.Get("type").String(); t != "" && r.Types != nil {
		to = r.Types[t]
	}
	return RefOf(v, to, namespace, scoped)
}

// at returns the value at a path of a Reference.
func (f Fields) at(path string) gjson.Result {
	key := ""
	if i := strings.IndexByte(path, '['); i >= 0 {
		path, key = path[:i], strings.TrimSuffix(path[i+1:], "]")
	}
	if path == "metadata.annotations" {
		return valueOf(f.Annotations, key)
	}
	if key != "" {
		path += "." + escaped.Replace(key)
	}
	if below, ok := strings.CutPrefix(path, "status."); ok {
		return f.Status.Get(below)
	}
	return f.Spec.Get(strings.TrimPrefix(path, "spec."))
}

// escaped makes an element of a gjson path of a key.
var escaped = strings.NewReplacer(".", `\.`)

// valueOf returns the value of a key that may have any characters.
func valueOf(o gjson.Result, key string) (value gjson.Result) {
	if !o.IsObject() {
		return value
	}
	o.ForEach(func(k, v gjson.Result) bool {
		if k.Str == key {
			value = v
		}
		return !value.Exists()
	})
	return value
}

// LabelsOf returns the labels of an object.
func LabelsOf(o gjson.Result) map[string]string {
	labels := map[string]string{}
	o.Get("metadata.labels").ForEach(func(k, v gjson.Result) bool {
		labels[k.String()] = v.String()
		return true
	})
	return labels
}

// RefOf reads a reference {apiGroup or apiVersion or group, kind, namespace, name}. to and
// namespace stand for what it does not say.
func RefOf(v gjson.Result, to object.GroupKind, namespace string,
	scoped func(object.GroupKind) bool) object.Ref {
	r := object.Ref{Group: to.Group, Kind: to.Kind, Namespace: namespace}
	if name := v.Get("name"); name.Type == gjson.String {
		r.Name = strings.Clone(name.Str)
	}
	if k := v.Get("kind"); k.Exists() {
		r.Kind = shared(k.String())
		if r.Kind == Secret.Kind || r.Kind == ConfigMap.Kind {
			r.Group = ""
		}
	}
	if g := v.Get("apiGroup"); g.Exists() {
		r.Group = shared(g.String())
	} else if a := v.Get("apiVersion"); a.Exists() {
		group, _, ok := strings.Cut(a.String(), "/")
		if !ok {
			group = ""
		}
		r.Group = shared(group)
	} else if g := v.Get("group"); g.Exists() {
		r.Group = shared(g.String())
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
