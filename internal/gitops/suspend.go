package gitops

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Suspend returns the owners to suspend so that every owner of objects of a unit is suspended:
// roots first, so that no parent ends the suspension of what it applies. Owners that a management
// cluster does not have cannot be suspended there, and are left out.
func (r Result) Suspend() []object.Ref {
	var open []*Owner
	for _, o := range r.Owners {
		if len(o.Units) == 0 || o.State == Absent || o.State == Passive {
			continue
		}
		for _, p := range o.open() {
			if p.found != nil && !slices.Contains(open, p) {
				open = append(open, p)
			}
		}
	}
	slices.SortStableFunc(open, func(a, b *Owner) int {
		if a.depth != b.depth {
			return a.depth - b.depth
		}
		return object.CompareRefs(a.Ref, b.Ref)
	})
	refs := make([]object.Ref, len(open))
	for i, o := range open {
		refs[i] = o.Ref
	}
	return refs
}

// UnitsOf returns the units of the objects that an owner applies itself or through others, by the
// ref of the owner.
func (r Result) UnitsOf() map[object.Ref][]string {
	units := map[object.Ref][]string{}
	for _, o := range r.Owners {
		for _, p := range o.Chain() {
			all := slices.Sorted(slices.Values(append(slices.Clone(o.Units), units[p.Ref]...)))
			units[p.Ref] = slices.Compact(all)
		}
	}
	return units
}

// Switch is the switch of an owner as a suspension found it.
type Switch struct {
	// Was is the value before; nil means that the field was absent.
	Was json.RawMessage `json:"was,omitempty"`
	UID string          `json:"uid"`
}

// ReadSwitch returns the switch of an owner, and whether the owner is suspended already.
func ReadSwitch(owner *unstructured.Unstructured) (s Switch, suspended bool, err error) {
	row, raw, err := rowOfObject(owner)
	if err != nil {
		return Switch{}, false, err
	}
	s.UID = string(owner.GetUID())
	if v := gjson.GetBytes(raw, gjsonPath(row.path)); v.Exists() {
		s.Was = json.RawMessage(v.Raw)
	}
	return s, row.isSuspended(gjson.ParseBytes(raw)), nil
}

// SetSwitch suspends an owner.
func SetSwitch(owner *unstructured.Unstructured) error {
	row, _, err := rowOfObject(owner)
	if err != nil {
		return err
	}
	return row.set(owner, row.suspends)
}

// ResetSwitch gives an owner its switch back as it was. It reports false, and changes nothing, when
// the owner was made again since, or when somebody else has written the switch.
func ResetSwitch(owner *unstructured.Unstructured, s Switch) (bool, error) {
	row, raw, err := rowOfObject(owner)
	if err != nil {
		return false, err
	}
	v := gjson.GetBytes(raw, gjsonPath(row.path))
	if string(owner.GetUID()) != s.UID || !reflect.DeepEqual(v.Value(), row.suspends) {
		return false, nil
	}
	by := managersOfField(gjson.GetBytes(raw, "metadata"), row.path)
	if row.suspends != nil && !slices.Contains(by, kube.DefaultFieldManager) {
		return false, nil
	}
	var was any
	if s.Was != nil {
		if err := json.Unmarshal(s.Was, &was); err != nil {
			return false, fmt.Errorf("decode the switch of %s: %w", owner.GetName(), err)
		}
	}
	return true, row.set(owner, was)
}

// set writes the switch; nil removes it.
func (row *kindRow) set(owner *unstructured.Unstructured, v any) error {
	if v == nil {
		unstructured.RemoveNestedField(owner.Object, row.path...)
		return nil
	}
	return unstructured.SetNestedField(owner.Object, v, row.path...)
}

// Busy returns what a tool is doing with the objects of an owner right now; "" when it is idle. A
// reconciliation that began before the suspension runs to its end.
func Busy(owner *unstructured.Unstructured) string {
	row, raw, err := rowOfObject(owner)
	if err == nil && busy(row.GroupKind, gjson.ParseBytes(raw)) {
		return fmt.Sprintf("%s still applies its objects", row.tool)
	}
	return ""
}

func rowOfObject(owner *unstructured.Unstructured) (*kindRow, []byte, error) {
	gvk := owner.GroupVersionKind()
	row := rowOf(object.GroupKind{Group: gvk.Group, Kind: gvk.Kind})
	if row == nil || !row.listed() {
		return nil, nil, fmt.Errorf("%s is no kind of owner", gvk.GroupKind())
	}
	raw, err := owner.MarshalJSON()
	return row, raw, err
}

// Marked reports whether an object says that a tool applies it. Its metadata alone decides, so a
// mark that other tools leave, too, does not count, nor does a release that people made with Helm.
func Marked(ref object.Ref, raw []byte) bool {
	return slices.ContainsFunc(claimsOf(ref, gjson.GetBytes(raw, "metadata")), func(c claim) bool {
		return !c.weak && c.GroupKind() != helmRelease
	})
}
