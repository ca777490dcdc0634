package restore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// guarded is a management cluster with one object. A webhook denies its deletion, with any code,
// unless it has AnnotationDeleteForMove, and perhaps then, too.
type guarded struct {
	Reader
	denial      error
	evenMarked  bool
	marked      bool
	patch, gone error
	asked       []string
}

func (g *guarded) PatchMetadata(_ context.Context, _ kube.Kind, _, _ string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	g.asked = append(g.asked, fmt.Sprintf("patch %v", metadata["resourceVersion"]))
	if g.patch != nil {
		return nil, g.patch
	}
	g.marked = true
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetUID("u")
	u.SetResourceVersion("8")
	return u, nil
}

func (g *guarded) Delete(_ context.Context, _ kube.Kind, _, _ string, _ types.UID,
	version string) error {
	g.asked = append(g.asked, "delete "+version)
	if g.gone != nil {
		return g.gone
	}
	if g.denial != nil && (!g.marked || g.evenMarked) {
		return g.denial
	}
	return nil
}

// TestADeletionThatAWebhookDeniesIsTriedWithTheAnnotation: the webhook gives its answer any code,
// also that of an object that is gone.
func TestADeletionThatAWebhookDeniesIsTriedWithTheAnnotation(t *testing.T) {
	ref := object.Ref{Group: "cluster.x-k8s.io", Kind: "Machine", Namespace: "n", Name: "m"}
	k := kube.Kind{GroupKind: ref.GroupKind(), Resource: "machines", Namespaced: true}
	denied := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason,
			Message: `admission webhook "v.example.com" denied the request: it is not moved`}}
	}
	notFound := denied(http.StatusNotFound, metav1.StatusReasonNotFound)
	conflict := denied(http.StatusConflict, metav1.StatusReasonConflict)
	internal := denied(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	policy := apierrors.NewForbidden(schema.GroupResource{}, "m", errors.New("a policy denied the request"))
	all := []string{"delete 7", "patch 7", "delete 8"}
	for name, tt := range map[string]struct {
		on      guarded
		asked   []string
		refused bool
	}{
		"nobody":          {guarded{}, all[:1], false},
		"not found":       {guarded{denial: notFound}, all, false},
		"a conflict":      {guarded{denial: conflict}, all, false},
		"an error":        {guarded{denial: internal}, all, false},
		"a policy":        {guarded{denial: policy}, all, false},
		"for good":        {guarded{denial: policy, evenMarked: true}, all, true},
		"not found, ever": {guarded{denial: notFound, evenMarked: true}, all, true},
		"the patch, too":  {guarded{denial: policy, patch: errors.New("read-only")}, all[:2], true},
		"gone":            {guarded{gone: apierrors.NewNotFound(schema.GroupResource{}, "m")}, all[:1], false},
	} {
		err := Remove(t.Context(), nil, &tt.on, k, ref, metav1.ObjectMeta{UID: "u", ResourceVersion: "7"},
			func(*unstructured.Unstructured) error { return nil })
		if !slices.Equal(tt.on.asked, tt.asked) || (err != nil) != tt.refused {
			t.Errorf("%s: asked %q, want %q: %v", name, tt.on.asked, tt.asked, err)
		}
	}
}
