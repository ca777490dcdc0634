package bench

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/measured"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

func (m *liveMoves) report(peer, batches, single moved) {
	out := &report{out: m.Out}
	fmt.Fprintf(m.Out, "\nMoves of a live fleet of %d workload clusters, %d Machines, %d objects: "+
		"there with clusterctl %s and back with mgmtctl, %d times\n",
		len(m.before.Of("cluster.x-k8s.io", "Cluster")), len(observe.Machines(m.before)), len(m.before),
		lab.ClusterctlVersion(), m.Moves)
	out.line("clusterctl move", median(peer.commands), "one command for each of %d namespaces, of %d "+
		"copies of each workload cluster", len(m.namespaces), max(m.Together, 1))
	out.line("  pause of a workload cluster", median(peer.pauses), "%s at most", most(peer.pauses))
	out.line("mgmtctl move run", median(batches.commands), "clusterctl takes %.1f of it (at least 4)",
		ratio(peer.commands, batches.commands))
	out.line("  pause of a workload cluster", median(batches.pauses), "%s at most; clusterctl's is "+
		"%.1f of it (at least 20)", most(batches.pauses), ratio(peer.pauses, batches.pauses))
	batches.lines(out)
	out.line("mgmtctl move run --concurrency 1", median(single.commands), "once")
	out.line("  pause of a workload cluster", median(single.pauses), "%s at most (under 2 s)",
		most(single.pauses))
	single.lines(out)
}

// lines print what the pauses consist of.
func (m moved) lines(out *report) {
	out.line("    until the last acknowledgement", median(m.acknowledged), "%s at most: the "+
		"controllers of the source take that long", most(m.acknowledged))
	out.line("    the rest of it", median(m.own), "%s at most (at most 1 s)", most(m.own))
}

// record writes the figures for the demo.
func (m *liveMoves) record(peer, batches moved) error {
	if m.Record == "" {
		return nil
	}
	return measured.Moves{
		Date: time.Now().UTC().Format(time.DateOnly), Clusterctl: lab.ClusterctlVersion(),
		Workloads: len(m.before.Of("cluster.x-k8s.io", "Cluster")),
		Machines:  len(observe.Machines(m.before)), Times: m.Moves,
		ClusterctlFigures: peer.figures(), MgmtctlFigures: batches.figures(),
	}.Write(m.Record)
}

func (m moved) figures() measured.Figures {
	return measured.Figures{Command: rounded(median(m.commands)), Pause: rounded(median(m.pauses)),
		LongestPause: rounded(slices.Max(m.pauses))}
}

func rounded(d time.Duration) metav1.Duration {
	return metav1.Duration{Duration: d.Round(100 * time.Millisecond)}
}

func most(all []time.Duration) time.Duration { return slices.Max(all).Round(time.Millisecond) }

// ratio is that of the medians.
func ratio(of, to []time.Duration) float64 { return float64(median(of)) / float64(median(to)) }
