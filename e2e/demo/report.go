package demo

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.Out, format, args...) }

func (d *demo) title(format string, args ...any) {
	d.step++
	d.printf("\n[%4.0fs] %d. %s\n", time.Since(d.began).Seconds(), d.step,
		fmt.Sprintf(format, args...))
}

func (d *demo) line(text string) { d.printf("        %s\n", text) }

func (d *demo) heading(text string) { d.printf("\n%s\n", text) }

// table prints rows in columns.
func (d *demo) table(rows ...[]string) {
	w := tabwriter.NewWriter(d.Out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, "  %s\n", strings.Join(row, "\t"))
	}
	_ = w.Flush() // when Out is gone, nobody can read an error either
}

// report prints what happened and what failed. It returns the number of problems.
func (d *demo) report() int {
	s := &d.story
	before := s.restore.before
	d.printf("\n%s\n", strings.Repeat("=", 100))
	d.heading("BEFORE")
	d.table(
		[]string{"managed by " + lost, fmt.Sprintf("%d workload clusters, %d Machines, %d Secrets; %d "+
			"objects in all",
			len(s.workloads), len(observe.Machines(before)), len(before.Of("", "Secret")), len(before))},
		[]string{"its snapshots in S3", d.snapshotText()},
	)
	d.heading(fmt.Sprintf("1. RESTORE: %s is killed with kill -9 and restored into %s", lost, refuge))
	d.table(
		[]string{"newest snapshot", seconds(s.age) + " old"},
		[]string{"from command to all control planes Ready for good", never(s.ready)},
		[]string{"from command to its end, everything verified", seconds(s.restore.command)},
	)
	d.heading(fmt.Sprintf("2. MOVE: from %s to %s, both live", refuge, home))
	pauses := make([]time.Duration, 0, len(s.pauses))
	for _, pause := range s.pauses {
		pauses = append(pauses, pause)
	}
	slices.Sort(pauses)
	if len(pauses) > 0 {
		peer := s.peer
		d.table(
			[]string{"pause of a workload cluster, as seen by watches on both",
				fmt.Sprintf("%s at least, %s at most", seconds(pauses[0]), seconds(pauses[len(pauses)-1]))},
			[]string{"  clusterctl move of such a fleet, measured by make bench on " + peer.Date,
				fmt.Sprintf("%s as a median, %s at most", seconds(peer.ClusterctlFigures.Pause.Duration),
					seconds(peer.ClusterctlFigures.LongestPause.Duration))},
			[]string{"from command to its end, everything verified, the source empty",
				seconds(s.move.command)},
			[]string{"then observed for", seconds(s.observed)},
		)
	}
	d.heading("WORKLOAD CLUSTERS: their API servers listed their Nodes every 0.2s, from before the " +
		"kill to the end")
	d.workloads()
	d.heading("MACHINES: name and provider ID on " + strings.Join([]string{lost, refuge, home},
		", "))
	d.machines()
	d.heading("CHECKS, by a program that imports nothing of mgmtd")
	problems := append(d.checks(), s.failures...)
	if len(problems) == 0 {
		d.printf("\nAll %d workload clusters survived the loss of one management cluster and the move "+
			"to another:\nnothing lost, nothing created again, nothing interrupted. (%s in all)\n",
			len(s.workloads), seconds(time.Since(d.began)))
		return 0
	}
	d.printf("\n%s\nFAIL: %d problems (%s in all)\n", strings.Repeat("!", 100),
		len(problems), seconds(time.Since(d.began)))
	const most = 40
	for _, problem := range problems[:min(most, len(problems))] {
		d.printf("  - %s\n", problem)
	}
	if more := len(problems) - most; more > 0 {
		d.printf("  - and %d more\n", more)
	}
	d.printf("%s\n", strings.Repeat("!", 100))
	return len(problems)
}

// snapshotText describes how the bucket grew.
func (d *demo) snapshotText() string {
	stores := d.story.stores
	text := fmt.Sprintf("one every %s: %s for the first", every, bytes(stores[0]))
	for i := 1; i < len(stores); i++ {
		text += fmt.Sprintf(", %s more for number %d", bytes(stores[i]-stores[i-1]), i+1)
	}
	return text
}

func (d *demo) workloads() {
	s := &d.story
	rows := [][]string{{"WORKLOAD CLUSTER", "PAUSED", "MACHINES", "NODES", "ANSWERS", "FAILED",
		"SLOWEST", "LONGEST GAP", "PAUSE OF MOVE"}}
	for _, a := range s.answers {
		pause := "-"
		if p, ok := s.pauses[a.Workload]; ok {
			pause = seconds(p)
		}
		var paused, machines []string
		for _, objects := range []observe.Objects{s.restore.before, s.restore.after, s.move.after} {
			paused = append(paused, pausedOf(objects, a.Workload))
			machines = append(machines, fmt.Sprint(machinesOf(objects, a.Workload)))
		}
		rows = append(rows, []string{
			a.Workload, history(paused), history(machines), fmt.Sprint(a.Nodes), fmt.Sprint(a.Good),
			fmt.Sprint(a.Failures),
			a.Slowest.Round(time.Millisecond).String(), a.Gap.Round(10 * time.Millisecond).String(), pause,
		})
	}
	d.table(rows...)
}

// history returns the values over time, without repetitions.
func history(values []string) string { return strings.Join(slices.Compact(values), " -> ") }

func pausedOf(objects observe.Objects, workload string) string {
	for _, o := range objects.Of("cluster.x-k8s.io", "Cluster") {
		if o.GetNamespace()+"/"+o.GetName() == workload && observe.Paused(o) {
			return "yes"
		}
	}
	return "no"
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
	result := func(was *observe.Machine, objects observe.Objects, key string) string {
		for _, m := range observe.Machines(objects) {
			switch {
			case m.Namespace+"/"+m.Name != key:
			case was == nil:
				return "NEW: " + m.ProviderID
			case m == *was:
				return "equal"
			default:
				return "ANOTHER: " + m.ProviderID
			}
		}
		return "GONE"
	}
	rows := [][]string{{"MACHINE", "PROVIDER ID ON " + lost, refuge, home}}
	known := map[string]bool{}
	for _, m := range observe.Machines(d.story.restore.before) {
		key := m.Namespace + "/" + m.Name
		known[key] = true
		rows = append(rows, []string{key, m.ProviderID, result(&m, d.story.restore.after, key),
			result(&m, d.story.move.after, key)})
	}
	for _, objects := range []observe.Objects{d.story.restore.after, d.story.move.after} {
		for _, m := range observe.Machines(objects) {
			if key := m.Namespace + "/" + m.Name; !known[key] {
				known[key] = true
				rows = append(rows, []string{key, "-", result(nil, d.story.restore.after, key),
					result(nil, d.story.move.after, key)})
			}
		}
	}
	d.table(rows...)
}

// checks prints the checks of both phases with their results. It returns the problems.
func (d *demo) checks() []string {
	s := &d.story
	var problems []string
	word := func(found []string) string {
		if problems = append(problems, found...); len(found) > 0 {
			return "FAIL"
		}
		return "ok"
	}
	rows := [][]string{{"", "", "RESTORE", "MOVE", ""}}
	restored, moved := s.restore.checks(), s.move.checks()
	for i, c := range restored {
		rows = append(rows, []string{word(slices.Concat(c.problems, moved[i].problems)), c.name, c.result,
			moved[i].result, details[c.name]})
	}
	answers, unreachable := 0, []string(nil)
	for _, a := range s.answers {
		if answers += a.Good; a.Failures > 0 || a.Good == 0 {
			unreachable = append(unreachable, fmt.Sprintf("%s: its API server answered %d times "+
				"and failed %d "+
				"times, the first: %s", a.Workload, a.Good, a.Failures, a.First))
		}
	}
	failed := 0
	for _, a := range s.answers {
		failed += a.Failures
	}
	rows = append(rows,
		[]string{word(unreachable), "workload APIs", fmt.Sprintf("%d good", answers),
			fmt.Sprintf("%d failed",
				failed), "answers, over both phases"},
		[]string{word(s.move.conflicts), "reconciled twice", "-", fmt.Sprint(len(s.move.conflicts)),
			"workload clusters that were unpaused on both management clusters at once"},
		[]string{word(s.move.left), "left on " + refuge, "-", fmt.Sprint(len(s.move.left)),
			"objects of any captured kind (Namespaces stay)"},
	)
	if want := len(s.workloads) - pausedWorkloads(s.move.before); len(s.pauses) != want {
		word([]string{fmt.Sprintf("%d workload clusters were paused and released, not %d",
			len(s.pauses), want)})
	}
	d.table(rows...)
	return problems
}

// details explains each check.
var details = map[string]string{
	"objects equal":          "spec, labels, annotations, finalizers, owners, field managers, Secrets",
	"owner references live":  "with the UIDs of the new management cluster",
	"Machines unchanged":     "with provider ID, Node and infrastructure",
	"health":                 "Machines Ready, workload clusters and control planes Available",
	"paused":                 "what was paused before, and nothing else; no annotation left",
	"CAs and keys unchanged": "Secrets",
	"created again or lost": "Machines, infrastructure objects, CA Secrets; none ever had a " +
		"deletion timestamp",
}

func pausedWorkloads(objects observe.Objects) int {
	n := 0
	for _, o := range objects.Of("cluster.x-k8s.io", "Cluster") {
		if observe.Paused(o) {
			n++
		}
	}
	return n
}

func never(d time.Duration) string {
	if d <= 0 {
		return "never"
	}
	return seconds(d)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func bytes(n int64) string { return fmt.Sprintf("%.0f KiB", float64(n)/1024) }
