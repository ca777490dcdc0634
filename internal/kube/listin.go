package kube

import (
	"bytes"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidwall/gjson"
)

const (
	// fewObjects is how many objects a kind has at most that is listed in all namespaces at once, to
	// spare the LISTs of severalNamespaces or more: most kinds have none.
	fewObjects        = 100
	severalNamespaces = 3
)

// listIn is List for ListOptions.Namespaces. What is not found in one namespace may be found in the
// others, which are read too.
func (r *Reader) listIn(ctx context.Context, k Kind, o ListOptions, fn func(raw []byte) error) (
	result ListResult, err error) {
	namespaces := o.Namespaces
	o.Namespaces = nil
	if len(namespaces) > ManyNamespaces {
		return r.List(ctx, k, o, fn)
	}
	if len(namespaces) >= severalNamespaces {
		objects, result, few := r.listFew(ctx, k, o, namespaces)
		for _, raw := range objects {
			if err := fn(raw); err != nil {
				return ListResult{}, err
			}
		}
		if few {
			return result, nil
		}
	}
	var missing error
	for _, o.Namespace = range namespaces {
		got, err := r.List(ctx, k, o, fn)
		if apierrors.IsNotFound(err) {
			missing = err
			continue
		}
		if err != nil {
			return ListResult{}, err
		}
		got.Items += result.Items
		result = got
	}
	return result, missing
}

// listFew reads the objects of a kind in all namespaces, if there are few, and returns those of
// some namespaces. It asks once: where that fails, by what is in other namespaces, or without the
// right to list these, the namespaces are listed one by one.
func (r *Reader) listFew(ctx context.Context, k Kind, o ListOptions, namespaces []string) (
	objects [][]byte, result ListResult, few bool) {
	in := map[string]bool{}
	for _, namespace := range namespaces {
		in[namespace] = true
	}
	few = true
	o.Limit = fewObjects
	l := lister{reader: r, kind: k, opts: o, fn: func(raw []byte) error {
		namespace := gjson.GetBytes(raw, "metadata.namespace").String()
		few = few && namespace != "" // or the server leaves it out
		if in[namespace] {
			objects = append(objects, bytes.Clone(raw))
		}
		return nil
	}}
	next, err := l.tryPage(ctx, 0)
	if err != nil || next != "" || !few {
		return nil, ListResult{}, false
	}
	return objects, ListResult{ResourceVersion: l.version, Items: len(objects)}, true
}
