package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/mgmtd/mgmtd/internal/schedule"
)

// sourceAnnotation names the management cluster of a Schedule.
const sourceAnnotation = annotationPrefix + "management-cluster"

// jitterAnnotation is the longest time by which the runs of a Schedule are delayed.
const jitterAnnotation = annotationPrefix + "jitter"

var scheduleRules = map[string]rule{
	"spec.schedule": honoured, "spec.paused": honoured, "spec.skipImmediately": honoured,
	"spec.template.ttl": honoured, "spec.template.includedNamespaces": honoured,
	"spec.template.storageLocation": honoured,
	// No volume is ever copied.
	"spec.template.snapshotVolumes": falseOnly, "spec.template.snapshotMoveData": falseOnly,
	"spec.template.defaultVolumesToFsBackup": falseOnly,
	"spec.template.defaultVolumesToRestic":   falseOnly, "spec.useOwnerReferencesInBackup": falseOnly,
}

var scheduleHints = map[string]string{
	"spec.template.labelSelector": "remove it and choose by includedNamespaces: selecting by " +
		"labels is not honoured yet",
	"spec.template.metadata": "remove it: snapshots have no labels",
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
	byDefault := ""
	for _, l := range c.Service.Locations {
		names = append(names, l.Name)
		if l.Default || len(c.Service.Locations) == 1 {
			byDefault = l.Name
		}
	}
	switch {
	case len(names) == 0: // reported where it belongs
	case name == "" && byDefault != "":
		return byDefault
	case name == "":
		d.problem(field, "missing, and no storage location is the default", "name one of "+
			strings.Join(names, ", "))
	case !slices.Contains(names, name):
		d.problem(field, fmt.Sprintf("no %s is named %q", locationKind, name), "name one of "+
			strings.Join(names, ", "))
	}
	return name
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
