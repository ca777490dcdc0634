package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// requests is how many requests of one check are in flight at once.
const requests = 16

// Right is a verb on a kind, or on a subresource of it.
type Right struct{ Verb, Subresource string }

// On gives the right as text for people, for example "update machines.cluster.x-k8s.io/status".
func (r Right) On(k kube.Kind) string {
	text := r.Verb + " " + strings.TrimSuffix(k.Resource+"."+k.Group, ".")
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	return text
}

// Prober asks an API server whether our credentials allow something. It tries nothing.
type Prober interface {
	Allowed(ctx context.Context, verb string, k kube.Kind, subresource string) (bool, error)
}

// Missing is a right that our credentials do not have.
type Missing struct {
	Kind  kube.Kind
	Right Right
}

// Finding is an error about one side, "source" or "target".
func (m Missing) Finding(side string) object.Finding {
	return object.Finding{Severity: object.Error, Code: object.CodeNotAllowed,
		Message: fmt.Sprintf("the credentials for the %s may not %s", side, m.Right.On(m.Kind)),
		Hint:    "use credentials of an administrator of the " + side}
}

// Rights asks for the rights that need returns for each kind, and returns those that are missing,
// sorted.
func Rights(ctx context.Context, p Prober, kinds []kube.Kind, need func(k kube.Kind) []Right) (
	[]Missing, error) {
	var mu sync.Mutex
	var missing []Missing
	g, ctx := task.WithContext(ctx)
	g.SetLimit(requests)
	for _, k := range kinds {
		for _, r := range need(k) {
			g.Go(func() error {
				allowed, err := p.Allowed(ctx, r.Verb, k, r.Subresource)
				if err != nil || allowed {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				missing = append(missing, Missing{k, r})
				return nil
			})
		}
	}
	err := g.Wait()
	slices.SortFunc(missing, func(a, b Missing) int {
		return strings.Compare(a.Kind.String()+a.Right.On(a.Kind), b.Kind.String()+b.Right.On(b.Kind))
	})
	return missing, err
}
