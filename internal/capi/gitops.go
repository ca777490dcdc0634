package capi

import "strings"

// gitOpsMarks are what GitOps controllers leave on objects that they apply.
var gitOpsMarks = []struct {
	annotationPrefix string // any annotation that begins so
	label            string
	source           string
}{
	{annotationPrefix: "argocd.argoproj.io/", label: "argocd.argoproj.io/instance",
		source: "argo-cd, docs/user-guide/resource_tracking.md"},
	{annotationPrefix: "kustomize.toolkit.fluxcd.io/", label: "kustomize.toolkit.fluxcd.io/name",
		source: "fluxcd/kustomize-controller, docs/spec/v1/kustomizations.md"},
}

// GitOpsOwned reports whether labels or annotations of an object say that a GitOps controller
// applies it: it would end a pause, and make the object again once it is gone.
func GitOpsOwned[V any](labels, annotations map[string]V) bool {
	for _, m := range gitOpsMarks {
		if _, ok := labels[m.label]; ok {
			return true
		}
		for key := range annotations {
			if strings.HasPrefix(key, m.annotationPrefix) {
				return true
			}
		}
	}
	return false
}
