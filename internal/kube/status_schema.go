package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapi "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// StatusSchema is what a CustomResourceDefinition requires of the status of its objects, at one
// version. It may be used concurrently.
type StatusSchema struct {
	structural *schema.Structural
	validator  *validate.SchemaValidator
}

// Lister lists the objects of a kind.
type Lister interface {
	List(ctx context.Context, k Kind, o ListOptions, fn func(raw []byte) error) (ListResult, error)
}

// StatusSchemas keeps the schemas that it reads, for callers that also read the kinds only once. A
// schema that changes later is not seen. The zero value is ready, and may be used concurrently.
type StatusSchemas struct {
	mu   sync.Mutex
	read map[string]*StatusSchema // by kind and version
}

// Read returns what ReadStatusSchema returned for k first. A nil StatusSchemas keeps nothing.
func (s *StatusSchemas) Read(ctx context.Context, r Lister, k Kind) (*StatusSchema, error) {
	if s == nil {
		return ReadStatusSchema(ctx, r, k)
	}
	key := k.GroupKind.String() + "/" + k.Version
	s.mu.Lock()
	schema, known := s.read[key]
	s.mu.Unlock()
	if known {
		return schema, nil
	}
	schema, err := ReadStatusSchema(ctx, r, k)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == nil {
		s.read = map[string]*StatusSchema{}
	}
	s.read[key] = schema
	return schema, nil
}

// ReadStatusSchema reads and compiles the schema of the status of k at k.Version. It returns nil
// when the kind has no CustomResourceDefinition, or that has no structural schema of a status.
// The API server prunes, defaults and validates by structural schemas only.
func ReadStatusSchema(ctx context.Context, r Lister, k Kind) (*StatusSchema, error) {
	var found *StatusSchema
	_, err := r.List(ctx, crdKind, ListOptions{Name: k.Resource + "." + k.Group},
		func(raw []byte) (err error) {
			found, err = compileStatus(raw, k.Version)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", k.GroupKind, err)
	}
	return found, nil
}

func compileStatus(raw []byte, version string) (*StatusSchema, error) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Status *apiextensionsv1.JSONSchemaProps
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &crd); err != nil {
		return nil, fmt.Errorf("decode CustomResourceDefinition: %w", err)
	}
	for _, v := range crd.Spec.Versions {
		status := v.Schema.OpenAPIV3Schema.Properties.Status
		if v.Name != version || status == nil {
			continue
		}
		var internal apiextensions.JSONSchemaProps
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(status,
			&internal, nil)
		if err != nil {
			return nil, err
		}
		structural, err := schema.NewStructural(&internal)
		if err != nil {
			return nil, nil // not structural
		}
		return &StatusSchema{structural: structural, validator: validate.NewSchemaValidator(
			structural.ToKubeOpenAPI(), nil, "", strfmt.Default)}, nil
	}
	return nil, nil
}

// Check changes a status as the API server does when it is written: unknown fields go, defaults
// come. It returns what is invalid in the result, as a path and a reason, never a value. Rules in
// CEL (x-kubernetes-validations) are not evaluated: their library would double this program.
func (s *StatusSchema) Check(status map[string]any) (invalid []string) {
	pruning.Prune(status, s.structural, false)
	setDefaults(status, s.structural)
	root := field.NewPath("status")
	for _, err := range s.validator.Validate(status).Errors {
		invalid = append(invalid, invalidText(root, err))
	}
	for _, err := range listtype.ValidateListSetsAndMaps(root, s.structural, status) {
		invalid = append(invalid, err.Field+": "+err.Type.String())
	}
	slices.Sort(invalid)
	return slices.Compact(invalid)
}

// invalidText names the path and the reason of an error of a validator, whose own text may quote
// the value.
func invalidText(root *field.Path, err error) string {
	invalid, ok := errors.AsType[*openapi.Validation](err)
	if !ok {
		return root.String() + ": " + field.ErrorTypeInvalid.String()
	}
	path := root.String()
	if invalid.Name != "" && invalid.Name != "." {
		path += "." + strings.TrimPrefix(invalid.Name, ".")
	}
	reason := field.ErrorTypeInvalid
	switch invalid.Code() {
	case openapi.RequiredFailCode:
		reason = field.ErrorTypeRequired
	case openapi.EnumFailCode:
		reason = field.ErrorTypeNotSupported
	case openapi.InvalidTypeCode:
		reason = field.ErrorTypeTypeInvalid
	case openapi.TooLongFailCode:
		reason = field.ErrorTypeTooLong
	case openapi.MaxItemsFailCode, openapi.TooManyPropertiesCode:
		reason = field.ErrorTypeTooMany
	}
	return path + ": " + reason.String()
}

// setDefaults adds the defaults of a schema to a value, and removes nulls that the schema does not
// allow. It follows Default and PruneNonNullableNullsWithoutDefaults of
// k8s.io/apiextensions-apiserver v0.36.3, pkg/apiserver/schema/defaulting: that package would link
// CEL and the metrics of an API server into this program.
func setDefaults(value any, s *schema.Structural) {
	if s == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, property := range s.Properties {
			is, found := value[name]
			switch {
			case found && (is != nil || property.Nullable):
			case property.Default.Object != nil:
				value[name] = runtime.DeepCopyJSONValue(property.Default.Object)
			case found:
				delete(value, name)
			}
			setDefaults(value[name], &property)
		}
		if s.AdditionalProperties != nil {
			for name := range value {
				if _, ok := s.Properties[name]; !ok {
					setDefaults(value[name], s.AdditionalProperties.Structural)
				}
			}
		}
	case []any:
		for i := range value {
			setDefaults(value[i], s.Items)
		}
	}
}
