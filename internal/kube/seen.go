package kube

import (
	"bytes"
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Seen are the versions in which a caller that polls objects has seen them. It reads an object at
// first as it is now. From then on the API server may answer from its memory, with the version that
// was seen before or a newer one, for half of the cost of a GET (ListOptions.Since): no answer is
// older than one before it. The zero value is ready, and may be used concurrently.
type Seen struct {
	mu       sync.Mutex
	versions map[object.Ref]string
}

// Gets reads objects.
type Gets interface {
	Lists
	Get(ctx context.Context, k Kind, namespace, name string) (*unstructured.Unstructured, error)
}

// Get reads an object, no older than it was seen before. A nil Seen reads it as it is now, as does
// one whose API server does not answer from memory: it begins, or lags behind, or etcd went back in
// time. NotFound comes as the API error.
func (s *Seen) Get(ctx context.Context, from Gets, k Kind, ref object.Ref) (
	*unstructured.Unstructured, error) {
	if version := s.version(ref); version != "" {
		u, err := remembered(ctx, from, k, ref, version)
		if err == nil {
			s.note(ref, u.GetResourceVersion())
			return u, nil
		}
		s.forget([]object.Ref{ref})
		if apierrors.IsNotFound(err) || ctx.Err() != nil {
			return nil, err
		}
	}
	u, err := from.Get(ctx, k, ref.Namespace, ref.Name)
	if err == nil {
		s.note(ref, u.GetResourceVersion())
	}
	return u, err
}

// remembered reads an object from the memory of the API server, at a version or a newer one.
func remembered(ctx context.Context, from Gets, k Kind, ref object.Ref, version string) (
	*unstructured.Unstructured, error) {
	var raw []byte
	_, err := from.List(ctx, k, ListOptions{Namespace: ref.Namespace, Name: ref.Name, Whole: true,
		Since: version}, func(found []byte) error {
		raw = bytes.Clone(found)
		return nil
	})
	if err == nil && raw == nil {
		err = apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Resource}, ref.Name)
	}
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

// version returns the version in which an object was seen, "" when it was not.
func (s *Seen) version(ref object.Ref) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions[ref]
}

func (s *Seen) note(ref object.Ref, version string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.versions == nil {
		s.versions = map[object.Ref]string{}
	}
	s.versions[ref] = version
}

// Forget has all objects read as they are now.
func (s *Seen) Forget() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = nil
}

// forget has objects read as they are now.
func (s *Seen) forget(refs []object.Ref) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		delete(s.versions, ref)
	}
}

// newest returns the newest version in which objects of one kind were seen; "" when one of them was
// not seen.
func (s *Seen) newest(refs []object.Ref) (newest string) {
	for _, ref := range refs {
		version := s.version(ref)
		if version == "" {
			return ""
		}
		if newest == "" {
			newest = version
			continue
		}
		order, err := resourceversion.CompareResourceVersion(version, newest)
		if err != nil {
			return "" // the server does not number its versions
		}
		if order > 0 {
			newest = version
		}
	}
	return newest
}
