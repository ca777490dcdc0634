package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/schedule"
)

// sourceAnnotation names the management cluster of a Schedule.
const sourceAnnotation = annotationPrefix + "management-cluster"

// jitterAnnotation is the longest time by which the runs of a Schedule are delayed.
const jitterAnnotation = annotationPrefix + "jitter"

var scheduleRules = map[string]rule{
	"spec.schedule": honoured, "spec.paused": honoured, "spec.skipImmediately": honoured,
	"spec.template.ttl": honoured, "spec.template.includedNamespaces": honoured,
	"spec.template.storageLocation": honoured, "spec.template.labelSelector": honoured,
	// No volume is ever copied.
	"spec.template.snapshotVolumes": falseOnly, "spec.template.snapshotMoveData": falseOnly,
	"spec.template.defaultVolumesToFsBackup": falseOnly,
	"spec.template.defaultVolumesToRestic":   falseOnly, "spec.useOwnerReferencesInBackup": falseOnly,
}

var scheduleHints = map[string]string{
	"spec.template.orLabelSelectors": "remove it and write one labelSelector, or a Schedule for each",
	"spec.template.metadata":         "remove it: snapshots have no labels",
}

// readSchedules makes schedules of the documents. What they name must be in c.
func (r *reader) readSchedules(documents []*document, c *Config) []schedule.Schedule {
	var list []schedule.Schedule
	seen := map[string]bool{}
	for _, d := range documents {
		d.readName(seen)
		var doc velerov1.Schedule
		ok := d.decode(&doc)
		d.checkSet(scheduleRules, scheduleHints)
		if !ok {
			continue
		}
		d.checkAnnotations(doc.Annotations, sourceAnnotation, jitterAnnotation)
		list = append(list, schedule.Schedule{
			Name: d.name, Cron: d.readCron(doc.Spec.Schedule),
			Source:     d.readSource(doc.Annotations[sourceAnnotation], c),
			Location:   d.readLocation(doc.Spec.Template.StorageLocation, c),
			Namespaces: d.readNamespaces(doc.Spec.Template.IncludedNamespaces),
			Selector:   d.readSelector(doc.Spec.Template.LabelSelector),
			TTL:        d.readTTL(doc.Spec.Template.TTL.Duration), Paused: doc.Spec.Paused,
			SkipImmediately: doc.Spec.SkipImmediately != nil && *doc.Spec.SkipImmediately,
			Jitter:          d.readJitter(doc.Annotations),
		})
	}
	return list
}

func (d *document) readTTL(ttl time.Duration) time.Duration {
	if ttl < 0 {
		d.problem("spec.template.ttl", "negative", "write how long to keep the snapshots at least, "+
			"such as 720h, or remove it")
	}
	return ttl
}

func (d *document) readJitter(annotations map[string]string) time.Duration {
	text, ok := annotations[jitterAnnotation]
	if !ok {
		return 0
	}
	jitter, err := time.ParseDuration(text)
	if err != nil || jitter < 0 {
		d.problem("metadata.annotations."+jitterAnnotation, fmt.Sprintf("%q is not a duration", text),
			"write by how much a run may be delayed, such as 5m, or remove it")
	}
	return jitter
}

func (d *document) readCron(expression string) string {
	if expression == "" {
		d.problem("spec.schedule", "missing",
			`write a cron expression, such as "0 3 * * *" or "@every 30s"`)
		return ""
	}
	if _, err := schedule.ParseCron(expression); err != nil {
		d.problem("spec.schedule", err.Error(),
			`write five fields, such as "0 3 * * *", "@daily" or "@every 30s", perhaps after "CRON_TZ=Europe/Berlin "`)
	}
	return expression
}

func (d *document) readSource(name string, c *Config) string {
	const field = "metadata.annotations." + sourceAnnotation
	var names []string
	for _, o := range c.Service.Sources {
		names = append(names, o.Name)
	}
	switch {
	case len(names) == 0: // reported where it belongs
	case name == "" && len(names) == 1:
		return names[0]
	case name == "":
		d.problem(field, "missing", "name one of "+strings.Join(names, ", "))
	case !slices.Contains(names, name):
		d.problem(field, fmt.Sprintf("no management cluster is named %q", name), "name one of "+
			strings.Join(names, ", "))
	}
	return name
}

func (d *document) readLocation(name string, c *Config) string {
	const field = "spec.template.storageLocation"
	var names []string
	for _, l := range c.Service.Locations {
		names = append(names, l.Name)
		if name == "" && (l.Default || len(c.Service.Locations) == 1) {
			name = l.Name
		}
	}
	at := slices.Index(names, name)
	switch {
	case len(names) == 0: // reported where it belongs
	case name == "":
		d.problem(field, "missing, and no storage location is the default", "name one of "+
			strings.Join(names, ", "))
	case at < 0:
		d.problem(field, fmt.Sprintf("no %s is named %q", locationKind, name), "name one of "+
			strings.Join(names, ", "))
	case c.Service.Locations[at].Store.ReadOnly:
		d.problem(field, fmt.Sprintf("%q is read-only", name), "name one with accessMode: ReadWrite")
	case originOf(c.Service.Locations, name) != "":
		d.problem(field, fmt.Sprintf("%q is the copy of %q, and takes no snapshots", name,
			originOf(c.Service.Locations, name)), "name the location that is copied")
	}
	return name
}

// readSelector returns the canonical form of a selector. One without requirements selects all, as
// in Velero.
func (d *document) readSelector(s *metav1.LabelSelector) string {
	if s == nil {
		return ""
	}
	const hint = "write labels as Clusters have them; an operator is In, NotIn, Exists or DoesNotExist"
	validate := func(s metav1.LabelSelector) field.ErrorList {
		return validation.ValidateLabelSelector(&s, validation.LabelSelectorValidationOptions{},
			field.NewPath("spec", "template", "labelSelector"))
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) { // its errors do not name the label
		for _, e := range validate(metav1.LabelSelector{
			MatchLabels: map[string]string{key: s.MatchLabels[key]}}) {
			d.problem(e.Field+"."+key, e.ErrorBody(), hint)
		}
	}
	for _, e := range validate(metav1.LabelSelector{MatchExpressions: s.MatchExpressions}) {
		d.problem(e.Field, e.ErrorBody(), hint)
	}
	requirements, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "" // reported
	}
	selector, err := graph.ParseSelector(requirements.String())
	if err != nil {
		d.problem("spec.template.labelSelector", err.Error(), hint)
	}
	return selector.String()
}

// readNamespaces takes names; "*" alone means all, as in Velero.
func (d *document) readNamespaces(list []string) []string {
	if len(list) == 1 && list[0] == "*" {
		return nil
	}
	for i, n := range list {
		if !name.MatchString(n) {
			d.problem(fmt.Sprintf("spec.template.includedNamespaces[%d]", i),
				fmt.Sprintf("%q is not the name of a namespace", n),
				`name each one, or write "*" alone for all`)
		}
	}
	return list
}
