package capi

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Reference is a field in which an object names others.
type Reference struct {
	// Path is the field. It is one of
	//   - a gjson path that begins with "spec." or "status.", in which # stands for each element of a
	//     list, and which may end with [key] for one annotation of an embedded object;
	//   - "metadata.annotations[key]", one annotation of the object;
	//   - "metadata.name", the object's own name;
	//   - empty, when Name says which object it is.
	// The value is a name, a reference {apiGroup or apiVersion or group, kind, namespace, name}, or a
	// list of these. A namespace that the field does not say is the object's own.
	Path string
	// Name is a fixed name by which controllers find the named object. It goes without Path.
	Name string
	// Suffix is what follows the value in the name of the named object.
	Suffix string
	// Namespace is the path of another field of the object, which has the namespace where Path has
	// a name alone; empty when there is none. It begins with "spec.".
	Namespace string
	// Controller: the named object is in the namespace of the controllers of the object's kind. It
	// is the namespace of their documented installation, for a source that does not say another one.
	Controller string
	// To is the kind of the named object where the field does not say it. Its group also is that of
	// a reference that says its kind alone, so that a To may have a group without a kind. A
	// reference to a Secret or a ConfigMap never needs a group.
	To object.GroupKind
	// Types are the kinds of a reference {type, name} by its type; one without a type is To. A type
	// that is not among them names nothing.
	Types map[string]object.GroupKind
	// SoftOwner: the named object is created before this one, as an owner is.
	SoftOwner bool
	// AfterDot: the value is "<something>.<name>".
	AfterDot bool
	// Qualified: the value is "<namespace>/<name>".
	Qualified bool
	// Optional: the named object may be absent, and then nothing is missing. A name that is only
	// derived from another one is of this sort.
	Optional bool
	// Required: controllers cannot work on this object without the named one: infrastructure, a
	// control plane, bootstrap data, an identity or credentials.
	Required bool
	// Unless is a path of the object, with dots between names. An object that has a value there does
	// not require the named one any more. Empty when there is none.
	Unless string
	// Back: the named object needs this one, and not the other way round. A BareMetalHost names its
	// consumer like that.
	Back bool
}

// paths of a Reference. referencePath are fields below spec or status, with # for each element of a
// list; fieldPath are those that Reference.Namespace may have.
var (
	referencePath = regexp.MustCompile(
		`^(spec|status)(\.#)?(\.[A-Za-z0-9_-]+(\.#)?)*\.[A-Za-z0-9_-]+(\[[A-Za-z0-9._/-]+\])?$`)
	annotationPath = regexp.MustCompile(`^metadata\.annotations\[[A-Za-z0-9._/-]+\]$`)
	fieldPath      = regexp.MustCompile(`^spec(\.[A-Za-z0-9_-]+)+$`)
)

// ownName is the path of an object's own name.
const ownName = "metadata.name"

// validate returns what is wrong with a reference, without its row; nil when nothing is.
func (r Reference) validate() error {
	known := r.Path == ownName || referencePath.MatchString(r.Path) ||
		annotationPath.MatchString(r.Path)
	switch {
	case r.Name != "" && r.Path != "":
		return fmt.Errorf("path %q: a fixed name goes without a path", r.Path)
	case r.Name == "" && !known:
		return fmt.Errorf("path %q is not one of fields below spec or status, such as "+
			"spec.files.#.secretName, an annotation, such as metadata.annotations[example.org/key], "+
			"or metadata.name", r.Path)
	case r.To.Kind == "" && r.isNameAlone():
		return fmt.Errorf("path %q needs a kind: its value is a name alone", r.Field())
	case r.Required && (r.Optional || r.Back), r.Unless != "" && !r.Required:
		return fmt.Errorf("path %q is required, and may be absent as well", r.Field())
	case r.Back && (r.SoftOwner || r.Optional):
		return fmt.Errorf("path %q is a back reference: its object needs nothing", r.Field())
	}
	for _, kind := range r.Types {
		if kind.Kind == "" {
			return fmt.Errorf("path %q has a type without a kind", r.Field())
		}
	}
	return r.validateNamespace()
}

// isNameAlone reports whether no value of the reference can say a kind.
func (r Reference) isNameAlone() bool {
	return r.Path == ownName || r.Name != "" || r.Suffix != "" || r.Controller != "" || r.Qualified
}

func (r Reference) validateNamespace() error {
	rules := 0
	for _, rule := range []bool{r.Namespace != "", r.Controller != "", r.Qualified} {
		if rule {
			rules++
		}
	}
	switch {
	case rules > 1 || r.Qualified && r.AfterDot:
		return fmt.Errorf("path %q has more than one rule for its namespace", r.Field())
	case r.Namespace != "" && !fieldPath.MatchString(r.Namespace):
		return fmt.Errorf("path %q: namespace path %q is not a field below spec", r.Field(), r.Namespace)
	}
	return nil
}

// Field is what an edge says of where it comes from.
func (r Reference) Field() string { return cmp.Or(r.Path, "name "+r.Name) }

// kinds are the kinds that a reference names whatever it holds.
func (r Reference) kinds() []object.GroupKind {
	var kinds []object.GroupKind
	if r.To.Kind != "" {
		kinds = append(kinds, r.To)
	}
	for kind := range maps.Values(r.Types) {
		kinds = append(kinds, kind)
	}
	return kinds
}
