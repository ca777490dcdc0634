package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replay creates an object as its managers did: each server-side apply by the
// manager that made it and with the fields it owns, then one update for all
// that controllers wrote, then the status. So the API server itself computes
// the managedFields, and they are what they would be on a live management
// cluster. It returns the object as it is then.
func replay(ctx context.Context, c client.Client, want *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	recordedGeneration := want.GetGeneration()
	managers := want.GetManagedFields()
	status := want.Object["status"]
	delete(want.Object, "status")
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "generation",
		"creationTimestamp"} {
		unstructured.RemoveNestedField(want.Object, "metadata", field)
	}
	live, err := replayFields(ctx, c, want, managers)
	if err != nil {
		return nil, err
	}
	if status == nil {
		return live, nil
	}
	for _, manager := range managers {
		if manager.Subresource != "status" || manager.Operation != metav1.ManagedFieldsOperationUpdate {
			continue
		}
		mapGenerations(status, recordedGeneration, live.GetGeneration())
		live.Object["status"] = status
		if err := c.Status().Update(ctx, live, client.FieldOwner(manager.Manager)); err != nil {
			return nil, fmt.Errorf("update status of %s %s: %w", want.GetKind(),
				client.ObjectKeyFromObject(want), err)
		}
		break
	}
	return live, nil
}

// createAtOnce creates an object with two requests, a third of the work of
// replay: all but the status, then the status. Its only field managers are
// controllers' updates, and generations are lower than live ones, since
// nothing is written twice.
func createAtOnce(ctx context.Context, c client.Client, want *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	recordedGeneration := want.GetGeneration()
	managers := want.GetManagedFields()
	status := want.Object["status"]
	unstructured.RemoveNestedField(want.Object, "status")
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "generation",
		"creationTimestamp"} {
		unstructured.RemoveNestedField(want.Object, "metadata", field)
	}
	name := fmt.Sprintf("%s %s", want.GetKind(), client.ObjectKeyFromObject(want))
	owner := client.FieldOwner(managers[len(managers)-1].Manager)
	if err := c.Create(ctx, want, owner); err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	if status != nil {
		mapGenerations(status, recordedGeneration, want.GetGeneration())
		want.Object["status"] = status
		if err := c.Status().Update(ctx, want, owner); err != nil {
			return nil, fmt.Errorf("update status of %s: %w", name, err)
		}
	}
	return want, nil
}

// replayFields creates all but the status.
func replayFields(ctx context.Context, c client.Client, want *unstructured.Unstructured,
	managers []metav1.ManagedFieldsEntry) (*unstructured.Unstructured, error) {
	var applied []metav1.ManagedFieldsEntry
	updater := ""
	for _, manager := range managers {
		switch {
		case manager.Subresource != "":
		case manager.Operation == metav1.ManagedFieldsOperationApply:
			applied = append(applied, manager)
		case updater == "":
			updater = manager.Manager
		}
	}
	if len(applied) == 0 {
		live := want.DeepCopy()
		if err := c.Create(ctx, live, client.FieldOwner(updater)); err != nil {
			return nil, fmt.Errorf("create %s %s: %w", want.GetKind(), client.ObjectKeyFromObject(want), err)
		}
		return live, nil
	}
	// Who owns the spec created the object; without it the schema refuses it.
	slices.SortStableFunc(applied, func(a, b metav1.ManagedFieldsEntry) int {
		return int(ownsSpec(b)) - int(ownsSpec(a))
	})
	var live *unstructured.Unstructured
	for _, manager := range applied {
		owned := fields{}
		if err := json.Unmarshal(manager.FieldsV1.GetRawBytes(), &owned); err != nil {
			return nil, fmt.Errorf("read fields of %s: %w", manager.Manager, err)
		}
		part, _ := extract(want.Object, owned).(fields)
		live = object(want.GetAPIVersion(), want.GetKind(), want.GetNamespace(), want.GetName(), part)
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(live),
			client.FieldOwner(manager.Manager), client.ForceOwnership)
		if err != nil {
			return nil, fmt.Errorf("apply %s %s as %s: %w", want.GetKind(), client.ObjectKeyFromObject(want),
				manager.Manager, err)
		}
	}
	if updater == "" {
		return live, nil
	}
	update := want.DeepCopy()
	// What a Secret was applied with; it is in its data by now.
	delete(update.Object, "stringData")
	update.SetUID(live.GetUID())
	update.SetResourceVersion(live.GetResourceVersion())
	if err := c.Update(ctx, update, client.FieldOwner(updater)); err != nil {
		return nil, fmt.Errorf("update %s %s: %w", want.GetKind(), client.ObjectKeyFromObject(want), err)
	}
	return update, nil
}

func ownsSpec(manager metav1.ManagedFieldsEntry) int8 {
	if strings.Contains(manager.FieldsV1.GetRawString(), `"f:spec"`) {
		return 1
	}
	return 0
}

// extract returns the part of value that a FieldsV1 set names: "f:" a field of
// an object, "k:" an item of a list by its keys, "v:" an item by its value, and
// the empty set a value as a whole.
func extract(value any, owned fields) any {
	if len(owned) == 0 {
		return value
	}
	switch value := value.(type) {
	case fields:
		part := fields{}
		for path, below := range owned {
			name, ok := strings.CutPrefix(path, "f:")
			if !ok {
				continue
			}
			child, present := value[name]
			switch {
			case !present:
			case len(asFields(below)) == 0 && (name == "annotations" || name == "labels"):
				// Owning the map itself is not owning what others put in.
				part[name] = fields{}
			default:
				part[name] = extract(child, asFields(below))
			}
		}
		return part
	case []any:
		part := []any{}
		for _, item := range value {
			if below, ok := ownedItem(item, owned); ok {
				part = append(part, extract(item, below))
			}
		}
		return part
	}
	return value
}

// ownedItem finds the entry of a set that names a list item.
func ownedItem(item any, owned fields) (fields, bool) {
	for path, below := range owned {
		if text, ok := strings.CutPrefix(path, "v:"); ok {
			if encoded, err := json.Marshal(item); err == nil && string(encoded) == text {
				return nil, true
			}
		}
		text, ok := strings.CutPrefix(path, "k:")
		if !ok {
			continue
		}
		keys := fields{}
		if json.Unmarshal([]byte(text), &keys) != nil {
			continue
		}
		if object, ok := item.(fields); ok && hasKeys(object, keys) {
			return asFields(below), true
		}
	}
	return nil, false
}

func hasKeys(object, keys fields) bool {
	for key, want := range keys {
		if fmt.Sprint(object[key]) != fmt.Sprint(want) {
			return false
		}
	}
	return true
}

func asFields(value any) fields {
	f, _ := value.(fields)
	return f
}

// mapGenerations maps every observedGeneration: one that was equal to the recorded generation
// becomes the live generation, an older one stays behind it.
func mapGenerations(value any, recorded, live int64) {
	switch value := value.(type) {
	case fields:
		for key, child := range value {
			if observed, ok := child.(int64); ok && key == "observedGeneration" {
				value[key] = live
				if observed != recorded {
					value[key] = max(1, live-1)
				}
				continue
			}
			mapGenerations(child, recorded, live)
		}
	case []any:
		for _, item := range value {
			mapGenerations(item, recorded, live)
		}
	}
}
