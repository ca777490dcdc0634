package kube

import (
	"bytes"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidwall/gjson"
)

const (
	// fewObjects is how many objects a kind has at most that is listed in all namespaces, to spare the
	// LISTs of severalNamespaces or more: most kinds have none.
	fewObjects        = 100
	severalNamespaces = 3
)

// listIn is List for ListOptions.Namespaces.
func (r *Reader) listIn(ctx context.Context, k Kind, o ListOptions, fn func(raw []byte) error) (
	result ListResult, err error) {
	namespaces := o.Namespaces
	o.Namespaces = nil
	if len(namespaces) > ManyNamespaces {
		return r.List(ctx, k, o, within(namespaces, fn))
	}
	if len(namespaces) >= severalNamespaces {
		result, few, err := r.listFew(ctx, k, o, within(namespaces, fn))
		if few || err != nil {
			return result, err
		}
	}
	for _, o.Namespace = range namespaces {
		got, err := r.List(ctx, k, o, fn)
		if err != nil {
			return ListResult{}, err
		}
		got.Items += result.Items
		result = got
	}
	return result, nil
}

// listFew calls fn with the objects of a kind in all namespaces if there are few.
func (r *Reader) listFew(ctx context.Context, k Kind, o ListOptions, fn func(raw []byte) error) (
	result ListResult, few bool, err error) {
	var objects [][]byte
	o.Limit = fewObjects
	result, err = r.List(ctx, k, o, func(raw []byte) error {
		objects = append(objects, bytes.Clone(raw))
		return nil
	})
	if apierrors.IsForbidden(err) {
		return ListResult{}, false, nil // perhaps it is allowed in these namespaces
	}
	if err != nil || len(objects) >= fewObjects {
		return ListResult{}, false, err
	}
	for _, raw := range objects {
		if err := fn(raw); err != nil {
			return ListResult{}, true, err
		}
	}
	return result, true, nil
}

// within returns a function that calls fn with the objects of some namespaces.
func within(namespaces []string, fn func(raw []byte) error) func(raw []byte) error {
	in := map[string]bool{}
	for _, namespace := range namespaces {
		in[namespace] = true
	}
	return func(raw []byte) error {
		if !in[gjson.GetBytes(raw, "metadata.namespace").String()] {
			return nil
		}
		return fn(raw)
	}
}
