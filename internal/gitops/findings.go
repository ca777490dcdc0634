package gitops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// mostNamed is how many objects or owners one finding names. The others are counted.
const mostNamed = 3

// Source returns the findings about the source of a move, on which every owner of the objects of a
// unit has to be suspended. suspend: the move suspends them itself.
func (r Result) Source(suspend bool) []object.Finding {
	findings := r.unread(object.Error, "source")
	absent := map[string][]*Owner{}
	var passive []*Owner
	for _, o := range r.Owners {
		switch {
		case o.State == Absent && !r.isUnread(o.GroupKind()):
			key := string(o.Tool) + "/" + o.Kind
			absent[key] = append(absent[key], o)
		case o.State == Absent:
		case o.State == Passive:
			passive = append(passive, o)
		default:
			findings = append(findings, o.sourceFinding(suspend)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(absent)) {
		if f, ok := remote(absent[key]); ok {
			findings = append(findings, f)
		}
	}
	if len(passive) > 0 {
		findings = append(findings, released(passive))
	}
	return findings
}

// sourceFinding returns the finding about an owner that the source has; none when its suspension
// holds.
func (o *Owner) sourceFinding(suspend bool) []object.Finding {
	open := o.open()
	f := object.Finding{Ref: o.Ref, Code: object.CodeGitOpsOwner, Severity: object.Warning}
	setUnits(&f, o.Units)
	switch {
	case len(open) == 0 && len(o.MayEnd) == 0:
		return nil
	case len(open) == 0:
		f.Message = fmt.Sprintf("%s applies %s with it. It is suspended, but %s, which applies it, is "+
			"not, and ends the suspension if Git states %s", o.Tool, named(o.Objects), names(o.MayEnd),
			strings.Join(o.found.row.path, "."))
		f.Hint = "see that Git does not state it, or " + commands(o.MayEnd)
		return []object.Finding{f}
	}
	f.Message = fmt.Sprintf("%s applies %s with it, and %s not suspended: on the source it would end "+
		"the pause, and create them again once they are gone", o.Tool, named(o.Objects), are(open))
	f.Hint = "suspend from the root down: " + commands(open)
	elsewhere := slices.DeleteFunc(slices.Clone(open),
		func(p *Owner) bool { return p.State != Absent })
	switch {
	case len(o.Units) == 0: // it has only what workload clusters share, which is not paused
		f.Message = fmt.Sprintf("%s applies %s with it, which workload clusters share: on the source "+
			"it creates them again once they are gone", o.Tool, named(o.Objects))
	case len(elsewhere) > 0:
		f.Severity, f.Code = object.Error, object.CodeGitOpsOwnerRemote
		f.Message += "; this management cluster does not have " + names(elsewhere)
	case suspend:
		f.Message += "; the move suspends it before the first pause"
		f.Hint = "resume it when the source is to be applied to again"
	default:
		f.Severity = object.Error
	}
	return []object.Finding{f}
}

// open returns the owners of a chain that have to be suspended before the owner is: roots first.
func (o *Owner) open() []*Owner {
	if o.Holds() {
		return nil
	}
	return slices.DeleteFunc(o.Chain(), func(p *Owner) bool { return p.State == Suspended })
}

// remote returns the finding about owners of one kind that the management cluster does not have.
func remote(owners []*Owner) (object.Finding, bool) {
	var units []string
	var objects []object.Ref
	for _, o := range owners {
		units, objects = append(units, o.Units...), append(objects, o.Objects...)
	}
	if len(units) == 0 {
		return object.Finding{}, false
	}
	first := owners[0]
	f := object.Finding{Severity: object.Error, Code: object.CodeGitOpsOwnerRemote,
		Message: fmt.Sprintf("%s say that %s of %s applies them, which this management cluster does "+
			"not have: one elsewhere may end the pause on the source, and create them again once they "+
			"are gone", named(objects), names(owners), first.Tool),
		Hint: "find out where it runs and suspend it there, or override this when it is gone"}
	switch {
	case first.Kind == "":
		f.Message = fmt.Sprintf("%s wrote %s, and no mark on them says from which owner: it may end "+
			"the pause on the source, and create them again once they are gone", first.Tool,
			named(objects))
	case first.Tool == Magnum:
		f.Message = fmt.Sprintf("%s belong to clusters of Magnum, which works on them from outside: "+
			"a cluster that it is deleting and does not find counts as deleted", named(objects))
		f.Hint = "wait until no cluster of Magnum is in progress, and stop magnum-conductor until it " +
			"has the kubeconfig of the target"
	case first.Command != "":
		f.Hint = "find out where it runs and suspend it there (" + commands(owners) + "), or override " +
			"this when it is gone"
	}
	setUnits(&f, units)
	return f, true
}

// released returns the finding about Helm releases that people made.
func released(owners []*Owner) object.Finding {
	var units []string
	var objects []object.Ref
	for _, o := range owners {
		units, objects = append(units, o.Units...), append(objects, o.Objects...)
	}
	f := object.Finding{Severity: object.Warning, Code: object.CodeGitOpsOwner,
		Message: fmt.Sprintf("%s belong to %s, which no controller applies. Whoever upgrades or "+
			"uninstalls it on the source after the move creates them there again, or removes what is "+
			"left", named(objects), names(owners)),
		Hint: "use Helm with the target from the move on, and see that no pipeline uses the source"}
	setUnits(&f, units)
	return f
}

// Target returns the findings about the target of a restore or a move: what will meet the objects
// there. atWork: the source lives, and was searched itself.
func (r Result) Target(atWork bool) []object.Finding {
	findings := r.unread(object.Warning, "target")
	var gone, hubs []*Owner
	for _, o := range r.Owners {
		switch {
		case o.State == Active || o.State == Suspended && len(o.Ends) > 0:
			f := object.Finding{Severity: object.Warning, Code: object.CodeGitOpsOwner, Ref: o.Ref,
				Message: fmt.Sprintf("%s of the target applies %s with it, and %s not suspended: it may "+
					"unpause, change or remove them before they are complete", o.Tool, named(o.Objects),
					are(o.open())),
				Hint: "suspend from the root down: " + commands(o.open()) + "; resume it when the " +
					"workload clusters are released and Git agrees with them"}
			setUnits(&f, o.Units)
			findings = append(findings, f)
		case o.State != Absent || atWork || r.isUnread(o.GroupKind()):
		case o.Tool == ArgoCD || o.Tool == Magnum:
			hubs = append(hubs, o)
		default:
			gone = append(gone, o)
		}
	}
	if len(hubs) > 0 {
		f, _ := remote(hubs)
		f.Severity, f.Ref = object.Warning, object.Ref{}
		f.Code = object.CodeGitOpsOwnerRemote
		f.Message = fmt.Sprintf("%s applied %d of the objects, and the target does not have it: one "+
			"elsewhere may apply them on the source, or here", names(hubs), count(hubs))
		f.Hint = "suspend it, and point it at the target after the release"
		findings = append(findings, f)
	}
	if len(gone) > 0 {
		findings = append(findings, object.Finding{Severity: object.Info, Code: object.CodeGitOpsOwner,
			Message: fmt.Sprintf("%s applied %d of the objects, and the target does not have it: "+
				"nothing applies them here until it is there", names(gone), count(gone)),
			Hint: "bring it to the target suspended, compare what it would change, and resume it after " +
				"the release"})
	}
	return findings
}

// unread returns the findings about owners that could not be searched for.
func (r Result) unread(severity object.Severity, side string) (findings []object.Finding) {
	for _, u := range r.Unread {
		findings = append(findings, object.Finding{Severity: severity, Code: object.CodeGitOpsUnread,
			Message: fmt.Sprintf("the owners of kind %s on the %s could not be listed, so nobody knows "+
				"whether one applies these objects: %v", u.Kind, side, u.Err),
			Hint: "grant list of that kind to the credentials for the " + side})
	}
	return findings
}

func (r Result) isUnread(gk object.GroupKind) bool {
	return slices.ContainsFunc(r.Unread, func(u Unread) bool { return u.Kind == gk })
}

// setUnits says which units a finding is about.
func setUnits(f *object.Finding, units []string) {
	units = slices.Compact(slices.Sorted(slices.Values(units)))
	if len(units) > 0 {
		f.Unit, f.Users = units[0], units[1:]
	}
}

func count(owners []*Owner) (n int) {
	for _, o := range owners {
		n += len(o.Objects)
	}
	return n
}

// named names the first of some objects, and counts them.
func named(refs []object.Ref) string {
	texts := make([]string, 0, mostNamed)
	for _, ref := range refs[:min(len(refs), mostNamed)] {
		texts = append(texts, ref.String())
	}
	return listed(texts, len(refs), "objects")
}

// names names the first of some owners, and counts them.
func names(owners []*Owner) string {
	texts := make([]string, 0, mostNamed)
	for _, o := range owners[:min(len(owners), mostNamed)] {
		texts = append(texts, o.Name())
	}
	return listed(texts, len(owners), "owners")
}

func listed(texts []string, of int, what string) string {
	text := strings.Join(texts, ", ")
	if of > len(texts) {
		return fmt.Sprintf("%d %s (%s, ...)", of, what, text)
	}
	return text
}

// are names owners as the subject of a sentence.
func are(owners []*Owner) string {
	verb := " is"
	if len(owners) > 1 {
		verb = " are"
	}
	return names(owners) + verb
}

// commands returns the commands that suspend owners, each once.
func commands(owners []*Owner) string {
	var texts []string
	for _, o := range owners {
		if o.Command != "" && !slices.Contains(texts, o.Command) {
			texts = append(texts, o.Command)
		}
	}
	if len(texts) > 2*mostNamed {
		texts = append(texts[:2*mostNamed], "and so on")
	}
	return cmp.Or(strings.Join(texts, "; "), "its tool has no command for it")
}
