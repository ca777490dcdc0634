package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// planLists and batchLists are how many kinds a plan lists at once: one of a whole operation, which
// may read many objects of each, and one of a batch, which reads few of most.
const (
	planLists  = 4
	batchLists = 16
)

// findExisting finds the planned refs that are on the target already, with their UIDs, all Clusters
// there, and what else belongs to planned units: metadata-only LISTs of each kind.
func (p *planner) findExisting(ctx context.Context) error {
	b := p.belonging()
	g, ctx := task.WithContext(ctx)
	g.SetLimit(planLists)
	if p.Spec.Only != nil { // units may be paused
		g.SetLimit(batchLists)
	}
	for gk, options := range p.listedKinds() {
		k, ok := p.kinds[gk]
		if !ok {
			k, _ = kube.FindKind(p.Kinds, gk)
		}
		if options.Namespaces, ok = p.listedIn(k, b); !ok {
			continue
		}
		g.Go(func() error {
			_, err := p.Reader.List(ctx, k, options, func(raw []byte) error {
				p.listed(k, b, raw)
				return nil
			})
			if err != nil && p.reportUnlisted(k, err) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// cannotList returns the finding about a kind that the API server cannot list while it answers
// about others: the conversion webhook of the kind is down, or our credentials lack the right. It
// returns false for any other error, and for none.
func cannotList(k kube.Kind, err error) (f object.Finding, is bool) {
	if !apierrors.IsForbidden(err) && !conversionDown(err) {
		return f, false
	}
	f = object.Finding{Severity: object.Error, Code: object.CodeWebhookDown,
		Message: fmt.Sprintf("the target cannot list %s: %s", k.GroupKind,
			kube.SafeText(k.GroupKind, err)),
		Hint: "wait until the controllers of its provider run and convert it, then plan again"}
	if apierrors.IsForbidden(err) {
		f.Code, f.Hint = object.CodeNotAllowed, "use credentials of an administrator of the target"
	}
	return f, true
}

// reportUnlisted reports a kind that cannot be listed, see cannotList. It blocks the units that
// have objects of the kind, and all other checks go on. It returns false for any other error.
func (p *planner) reportUnlisted(k kube.Kind, err error) bool {
	f, is := cannotList(k, err)
	if !is {
		return false
	}
	p.mu.Lock() // what a first page has shown would be read again, and fail
	maps.DeleteFunc(p.existing, func(r object.Ref, _ string) bool {
		return r.GroupKind() == k.GroupKind
	})
	p.mu.Unlock()
	reported := map[string]bool{}
	for n := range p.active {
		if n.GroupKind() == k.GroupKind && (n.Unit == "" || !reported[n.Unit]) {
			reported[n.Unit] = true
			p.add(n, f)
		}
	}
	if len(reported) == 0 {
		f.Severity = object.Warning
		f.Message += "; whether it has leftovers of these workload clusters is not known"
		p.addAll(f)
	}
	return true
}

// conversionDown reports whether a conversion webhook does not answer. The API server has no
// reason of its own for that (k8s.io/apiextensions-apiserver v0.36,
// pkg/apiserver/conversion/webhook_converter.go: "conversion webhook for %v failed").
func conversionDown(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError &&
		strings.Contains(status.Status().Message, "conversion webhook")
}
