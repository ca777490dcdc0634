package preflight

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// CompareProviders checks that a target has the providers of a source, at their versions or newer.
// A target without an inventory of clusterctl, whose providers an operator, Helm or a GitOps tool
// installed, has those whose kinds it serves, which is a check of its own.
func CompareProviders(source, target []kube.Provider) []object.Finding {
	var findings []object.Finding
	if len(target) == 0 && len(source) > 0 {
		names := make([]string, len(source))
		for i, p := range source {
			names[i] = p.Name + " " + p.Version
		}
		return []object.Finding{{Severity: object.Warning, Code: object.CodeNoInventory,
			Message: "clusterctl did not install the providers of the target, so their versions are not " +
				"known; the source has " + strings.Join(names, ", "),
			Hint: "check that the target has these providers, at these versions or newer"}}
	}
	for _, want := range source {
		i := slices.IndexFunc(target, func(have kube.Provider) bool { return have.Name == want.Name })
		switch {
		case i < 0:
			findings = append(findings, object.Finding{Severity: object.Error,
				Code: object.CodeProviderMissing,
				Message: fmt.Sprintf("provider %s %s of the source is not in the target's inventory", want.Name,
					want.Version),
				Hint: "install it with clusterctl init, at that version or newer"})
		case older(target[i].Version, want.Version):
			findings = append(findings, object.Finding{Severity: object.Error,
				Code: object.CodeProviderOlder,
				Message: fmt.Sprintf("provider %s is %s on the target, older than %s on the source", want.Name,
					target[i].Version, want.Version),
				Hint: "upgrade it with clusterctl upgrade"})
		}
	}
	return findings
}

// older compares provider versions; a version that does not parse is not older.
func older(have, want string) bool {
	h, err1 := version.ParseSemantic(have)
	w, err2 := version.ParseSemantic(want)
	return err1 == nil && err2 == nil && h.LessThan(w)
}

// CheckInventory checks that the kinds of each provider of one management cluster carry its label
// and a contract version: without them they are not captured.
func CheckInventory(kinds []kube.Kind, providers []kube.Provider) []object.Finding {
	if len(providers) == 0 {
		return []object.Finding{{Severity: object.Info, Code: object.CodeNoInventory,
			Message: "clusterctl did not install its providers, so their versions are not known",
			Hint:    "compare them by hand before a restore or a move"}}
	}
	provided := map[string]bool{}
	for _, k := range kinds {
		if k.Contract && k.Provider != "" {
			provided[k.Provider] = true
		}
	}
	var findings []object.Finding
	for _, p := range providers {
		// Runtime extensions and add-on providers bring no kinds of their own.
		sort, _, _ := strings.Cut(p.Name, "-")
		bringsKinds := slices.Contains([]string{"infrastructure", "bootstrap", "control", "cluster"},
			sort)
		if bringsKinds && !provided[p.Name] {
			findings = append(findings, object.Finding{Severity: object.Warning,
				Code: object.CodeContractMissing,
				Message: fmt.Sprintf("provider %s %s is installed, and no kind carries its label and a "+
					"contract version", p.Name, p.Version),
				Hint: "its kinds may not be captured: see the coverage of the source, and install the " +
					"provider again"})
		}
	}
	return findings
}
