package demo

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.Out, format, args...) }

func (d *demo) title(format string, args ...any) {
	d.step++
	d.printf("\n[%4.0fs] %d. %s\n", time.Since(d.began).Seconds(), d.step, fmt.Sprintf(format, args...))
}

func (d *demo) line(text string) { d.printf("        %s\n", text) }

func (d *demo) heading(text string) { d.printf("\n%s\n", text) }

// table prints rows in columns.
func (d *demo) table(rows ...[]string) {
	w := tabwriter.NewWriter(d.Out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, "  %s\n", strings.Join(row, "\t"))
	}
	_ = w.Flush() // there is nobody to tell when Out is gone
}

// report prints what happened, and what is not as it was.
func (d *demo) report() {
	s := &d.story
	d.printf("\n%s\n", strings.Repeat("=", 100))
	d.heading("THE OUTAGE")
	d.table(
		[]string{"lost", "a whole management cluster, with kill -9, for good"},
		[]string{"at stake", fmt.Sprintf("%d workload clusters, %d Machines, %d Secrets; %d objects in all",
			len(s.workloads), len(observe.Machines(s.before)), len(s.before.Of("", "Secret")), len(s.before))},
		[]string{"what was left", fmt.Sprintf("a store of %s, encrypted and signed: %s after the first snapshot, %s more for the second",
			bytes(s.stores[1]), bytes(s.stores[0]), bytes(s.stores[1]-s.stores[0]))},
	)
	ready := "never"
	if s.ready > 0 {
		ready = seconds(s.ready)
	}
	d.heading("THE RESTORE, into another management cluster with its controllers running")
	d.table(
		[]string{"command to all control planes Ready for good", ready},
		[]string{"command to its end, everything verified", seconds(s.command)},
		[]string{"then looked on for", seconds(s.observed)},
	)
	d.heading("WORKLOAD CLUSTERS, before and after; their API servers were asked for their Nodes every 0.2s, from before the kill to the end")
	d.workloads()
	d.heading("MACHINES, by name and provider ID")
	d.machines()
	d.heading("SEEN FROM OUTSIDE")
	d.checks()
	if len(s.notSo) == 0 {
		d.printf("\nAll %d workload clusters are in good hands again: nothing lost, nothing made anew. (%s in all)\n", len(s.workloads), seconds(time.Since(d.began)))
		return
	}
	d.printf("\n%s\nNOT SO: %d things are not as they must be\n", strings.Repeat("!", 100), len(s.notSo))
	const most = 40
	for _, problem := range s.notSo[:min(most, len(s.notSo))] {
		d.printf("  - %s\n", problem)
	}
	if more := len(s.notSo) - most; more > 0 {
		d.printf("  - and %d more\n", more)
	}
	d.printf("%s\n", strings.Repeat("!", 100))
}

func (d *demo) workloads() {
	s := &d.story
	rows := [][]string{{"WORKLOAD CLUSTER", "PAUSED", "MACHINES", "NODES", "ANSWERS", "FAILED", "SLOWEST", "LONGEST GAP"}}
	for _, a := range s.answers {
		rows = append(rows, []string{
			a.Workload, d.pausedOf(a.Workload), fmt.Sprintf("%d -> %d", machinesOf(s.before, a.Workload), machinesOf(s.after, a.Workload)),
			fmt.Sprint(a.Nodes), fmt.Sprint(a.Good), fmt.Sprint(a.Failures),
			a.Slowest.Round(time.Millisecond).String(), a.Gap.Round(10 * time.Millisecond).String(),
		})
	}
	d.table(rows...)
}

func (d *demo) pausedOf(workload string) string {
	word := func(objects observe.Objects) string {
		for _, o := range objects.Of("cluster.x-k8s.io", "Cluster") {
			if o.GetNamespace()+"/"+o.GetName() == workload && observe.Paused(o) {
				return "yes"
			}
		}
		return "no"
	}
	return word(d.story.before) + " -> " + word(d.story.after)
}

func machinesOf(objects observe.Objects, workload string) int {
	n := 0
	for _, m := range observe.Machines(objects) {
		if m.Namespace+"/"+m.Cluster == workload {
			n++
		}
	}
	return n
}

func (d *demo) machines() {
	after := map[string]observe.Machine{}
	for _, m := range observe.Machines(d.story.after) {
		after[m.Namespace+"/"+m.Name] = m
	}
	rows := [][]string{{"MACHINE", "PROVIDER ID BEFORE", "AFTER"}}
	for _, m := range observe.Machines(d.story.before) {
		key := m.Namespace + "/" + m.Name
		now, ok := after[key]
		verdict := "equal"
		switch {
		case !ok:
			verdict = "GONE"
		case now != m:
			verdict = "ANOTHER: " + now.ProviderID
		}
		rows = append(rows, []string{key, m.ProviderID, verdict})
		delete(after, key)
	}
	for key, m := range after {
		rows = append(rows, []string{key, "-", "NEW: " + m.ProviderID})
	}
	d.table(rows...)
}

// checks names each promise, and how it was kept.
func (d *demo) checks() {
	s := &d.story
	equal := len(s.before)
	for _, difference := range observe.Compare(s.before, s.after, observe.Options{WithoutStatus: true}) {
		if difference.What != observe.New {
			equal--
		}
	}
	births := observe.Births(s.events, "")
	answers, failures := 0, 0
	for _, a := range s.answers {
		answers += a.Good
		failures += a.Failures
	}
	verdict := func(problems int) string {
		if problems > 0 {
			return "NOT SO"
		}
		return "ok"
	}
	authorities, changed := observe.Authorities(s.before), 0
	for ref, hash := range observe.Authorities(s.after) {
		if authorities[ref] != hash {
			changed++
		}
	}
	anew := observe.Anew(s.events, s.before)
	d.table(
		[]string{verdict(len(observe.Compare(s.before, s.after, observe.Options{WithoutStatus: true}))), "objects equal",
			fmt.Sprintf("%d of %d: spec, labels, annotations, finalizers, owners, field managers, Secrets", equal, len(s.before))},
		[]string{verdict(len(d.story.dangling)), "owner references live", fmt.Sprintf("%d of %d", s.owners-len(d.story.dangling), s.owners)},
		[]string{verdict(len(observe.CompareMachines(s.before, s.after))), "Machines kept",
			fmt.Sprintf("%d, with provider ID, Node and infrastructure", len(observe.Machines(s.before)))},
		[]string{verdict(len(observe.Health(s.before, s.after))), "health", "all Machines Ready, all workload clusters and control planes Available (the paused ones as they were)"},
		[]string{verdict(len(observe.CheckPaused(s.before, s.after))), "paused", "what was paused, and nothing else; no note left behind"},
		[]string{verdict(changed + len(authorities) - len(observe.Authorities(s.after))), "certificate authorities", fmt.Sprintf("%d Secrets, the same", len(authorities))},
		[]string{verdict(len(anew)), "made anew or deleted", fmt.Sprintf("%d Machines, infrastructure objects or CA Secrets (%d restored, each created once)", len(anew), births)},
		[]string{verdict(failures), "workload API answers", fmt.Sprintf("%d good, %d failed", answers, failures)},
	)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func bytes(n int64) string { return fmt.Sprintf("%.0f KiB", float64(n)/1024) }
