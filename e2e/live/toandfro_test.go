package live

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

const (
	killsToAndFro = 25 // at least
	mostKillsWay  = 9  // of one move, so that the fleet goes to and fro
	// longestLife is how long a process lives at most. Most moves of this fleet take as long.
	longestLife = 25 * time.Second
	// longestTrouble is how long an API server or a network is away at most.
	longestTrouble = 8 * time.Second
)

// toAndFro is the fixture of TestLongMovesToAndFroWithKills.
type toAndFro struct {
	*hostLost
	random   *rand.Rand
	networks map[*lab.Mgmt]*network
	kills    map[string]int // by the phase of the step that had begun last
}

// TestLongMovesToAndFroWithKills moves one live fleet to and fro until mgmtctl was killed with
// kill -9 at 25 random moments. Meanwhile API servers are killed and started again, networks are
// cut, and catalogs are lost. No workload cluster is ever reconciled twice, each answers all the
// time, and no Machine is created, deleted or replaced.
func TestLongMovesToAndFroWithKills(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the moments: %d", seed)
	f := &toAndFro{hostLost: &hostLost{fixture: &fixture{dir: t.TempDir()}},
		random: rand.New(rand.NewPCG(seed, 0)), networks: map[*lab.Mgmt]*network{},
		kills: map[string]int{}}
	t.Cleanup(f.close)
	f.build(t)
	from, to := f.source, f.target
	for f.killed() < killsToAndFro {
		f.move(t, from, to)
		f.assertMoved(t, from, to, f.before, f.namespaces...)
		from, to = to, from
	}
	time.Sleep(window)
	if err := f.reconcilers.Stop(); err != nil {
		t.Errorf("watch Clusters: %v", err)
	}
	assertNone(t, "reconciled twice", f.reconcilers.Conflicts())
	for name, w := range map[string]*observe.Watcher{"source": f.leaving, "target": f.arriving} {
		for _, event := range w.Events() {
			if event.What == observe.Deleting {
				t.Errorf("a controller of the %s saw the deletion of %+v", name, event)
			}
		}
	}
	f.assertAnswered(t)
	t.Logf("%d kills, by the phase of the step that had begun last: %v", f.killed(), f.kills)
}

// build starts the lab, makes a fleet of which two workload clusters share a class, and observes
// both management clusters from then on.
func (f *toAndFro) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := f.start(ctx, lab.Options{}); err != nil {
		t.Fatal(err)
	}
	shapes := fleet.Named("classy", "classy-ha", "plain", "cross")
	for _, shape := range shapes {
		f.namespaces = append(f.namespaces, shape.Namespace)
	}
	slices.Sort(f.namespaces)
	f.namespaces = slices.Compact(f.namespaces)
	f.provision(ctx, t, shapes)
	f.before = f.before.In(f.namespaces...)
	for _, m := range []*lab.Mgmt{f.source, f.target} {
		f.networks[m] = startNetwork(t, m)
	}
}

func (f *toAndFro) killed() (n int) {
	for _, kills := range f.kills {
		n += kills
	}
	return n
}

// move moves the fleet, with kills and troubles, until it has moved.
func (f *toAndFro) move(t *testing.T, from, to *lab.Mgmt) {
	t.Helper()
	o := f.host(t)
	flags := append(f.flags(t), "--source-kubeconfig", f.networks[from].kubeconfig,
		"--target-kubeconfig", f.networks[to].kubeconfig) // the last one counts
	run := slices.Concat([]string{"move", "run", "--yes", "--observe", "0", "--max-failures", "0"},
		flags)
	for _, namespace := range f.namespaces {
		run = append(run, "--namespace", namespace)
	}
	args := run
	for kills := 0; ; {
		lived := time.Duration(f.random.Int64N(int64(longestLife)))
		if kills == mostKillsWay || f.killed() >= killsToAndFro {
			lived = healthTimeout
		}
		heal := f.trouble(t, from, to)
		out, killed := o.runFor(lived, args...)
		heal()
		t.Logf("%s from %s: killed %t, exit code %d", strings.Join(args[:2], " "), from.Name(), killed,
			out.code)
		phase := o.lastPhase()
		if killed && lived < healthTimeout {
			kills++
			f.kills[phase]++
		}
		switch {
		case !killed && out.code == codeDone:
			return
		case !o.begun():
			args = run
		case phase != noPhase && f.random.IntN(4) == 0: // the host is lost with its catalog
			o = f.host(t)
			args = slices.Concat([]string{"operation", "resume", o.listed("running", flags)}, flags)
		default:
			args = slices.Concat([]string{"operation", "resume", "latest"}, flags)
		}
	}
}

// trouble lets something happen to an API server or a network while a command runs, in half of the
// cases, and returns a function that waits for its end.
func (f *toAndFro) trouble(t *testing.T, from, to *lab.Mgmt) (end func()) {
	t.Helper()
	m := []*lab.Mgmt{from, to}[f.random.IntN(2)]
	n := f.networks[m]
	kind := f.random.IntN(8)
	before := time.Duration(f.random.Int64N(int64(longestLife)))
	away := time.Duration(f.random.Int64N(int64(longestTrouble)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if kind > 2 {
			return
		}
		time.Sleep(before)
		t.Logf("trouble %d with %s for %s", kind, m.Name(), away)
		switch kind {
		case 0:
			n.refuse()
		case 1:
			n.silence()
		case 2:
			if err := m.KillAPIServer(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(away)
		if kind < 2 {
			n.heal(t)
		} else if err := m.RestartAPIServer(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	return func() { <-done }
}

// noPhase: the store need not have an operation without steps.
const noPhase = "before the first step"

// lastPhase returns the phase of the newest step in the history of the newest operation.
func (o *operator) lastPhase() string {
	o.t.Helper()
	out := o.exec(o.t.Context(), o.state, "operation", "watch", "latest", "--standalone", "-o", "json")
	var show struct {
		Events []struct {
			Step string `json:"step"`
		} `json:"events"`
	}
	phase := noPhase
	if out.decode(&show) != nil { // it was killed before it had an operation
		return phase
	}
	for _, e := range show.Events {
		if parts := strings.Split(e.Step, "/"); len(parts) > 2 {
			phase = parts[2]
		}
	}
	return phase
}
