package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// crds is a management cluster without CustomResourceDefinitions.
type crds struct {
	lists int
	err   error
}

func (c *crds) List(context.Context, Kind, ListOptions, func(raw []byte) error) (ListResult,
	error) {
	c.lists++
	return ListResult{}, c.err
}

func TestSchemasAreReadOnce(t *testing.T) {
	var schemas StatusSchemas
	var none *StatusSchemas
	from := &crds{err: errors.New("no answer")}
	machine := Kind{GroupKind: object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"},
		Version: "v1beta2"}
	older := machine
	older.Version = "v1beta1"
	if _, err := schemas.Read(t.Context(), from, machine); err == nil {
		t.Error("an error is kept as an answer")
	}
	from.err = nil
	for _, tt := range []struct {
		schemas *StatusSchemas
		kind    Kind
		lists   int
	}{{&schemas, machine, 2}, {&schemas, machine, 2}, {&schemas, older, 3}, {none, older, 4}} {
		if _, err := tt.schemas.Read(t.Context(), from, tt.kind); err != nil || from.lists != tt.lists {
			t.Errorf("%s: %d lists, want %d: %v", tt.kind.Version, from.lists, tt.lists, err)
		}
	}
}
