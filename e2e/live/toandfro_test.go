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
	killsAtRandom = 14 // before those in the phases that these have missed
	killsInPhase  = 2  // in each of movePhases, at least
	mostKillsWay  = 9  // of one move, so that the fleet goes to and fro
	killsToLose   = 4  // after every fourth kill the catalog is lost with its host
	// longestLife is how long a process lives at most that dies at random. Most moves of this fleet
	// take twice as long.
	longestLife = 25 * time.Second
	// A server or the network to it is away for so long.
	shortestTrouble = time.Second
	longestTrouble  = 8 * time.Second
	longestTest     = 20 * time.Minute
)

// toAndFro is the fixture of TestLongMovesToAndFroWithKills.
type toAndFro struct {
	*hostLost
	began    time.Time
	random   *rand.Rand
	networks map[*lab.Mgmt]*network
	bucket   *network       // the network to the S3 server
	runs     int            // of mgmtctl
	kills    map[string]int // by the phase of the step that had begun last
	lost     int            // catalogs
	// troubles are those to come, of all, and happened those that were there, by their names.
	all, troubles []trouble
	happened      map[string]int
}

// TestLongMovesToAndFroWithKills moves one live fleet to and fro until mgmtctl was killed with
// kill -9 at 25 random moments, and twice in each phase of a move. Meanwhile API servers and the
// S3 server are killed and started again, the networks to them are cut, and catalogs are lost. No
// workload cluster is ever reconciled twice, each answers all the time, and no Machine is created,
// deleted or replaced.
func TestLongMovesToAndFroWithKills(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the moments: %d", seed)
	f := &toAndFro{hostLost: &hostLost{fixture: &fixture{dir: t.TempDir()}},
		began: time.Now(), random: rand.New(rand.NewPCG(seed, 0)),
		networks: map[*lab.Mgmt]*network{}, kills: map[string]int{}, happened: map[string]int{}}
	t.Cleanup(f.close)
	f.build(t)
	from, to, moves := f.source, f.target, 0
	for f.goesOn() {
		f.move(t, from, to)
		f.assertMoved(t, from, to, f.before, f.namespaces...)
		from, to = to, from
		moves++
	}
	time.Sleep(window)
	if err := f.reconcilers.Stop(); err != nil {
		t.Errorf("watch Clusters: %v", err)
	}
	assertNone(t, "reconciled twice", f.reconcilers.Conflicts())
	f.assertSameMachines(t)
	f.assertAnswered(t)
	t.Logf("%d moves in %s, %d kills, by the phase of the step that had begun last: %v; "+
		"%d catalogs lost; troubles: %v", moves, time.Since(f.began).Round(time.Second), f.killed(),
		f.kills, f.lost, f.happened)
}

// assertSameMachines asserts that no controller saw the deletion of an object, and that nothing was
// created that had not been there before: a Machine that replaces another one has a new name.
func (f *toAndFro) assertSameMachines(t *testing.T) {
	t.Helper()
	for _, w := range []*observe.Watcher{f.leaving, f.arriving} {
		if err := w.Stop(); err != nil {
			t.Errorf("watch Machines: %v", err)
		}
		for _, event := range w.Events(f.namespaces...) {
			if event.What == observe.Deleting || f.before[event.Ref] == nil {
				t.Errorf("%s was %s", event.Ref, event.What)
			}
		}
	}
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
	if err := f.startS3(ctx); err != nil {
		t.Fatal(err)
	}
	f.bucket = startNetworkTo(t, strings.TrimPrefix(f.s3.Endpoint, "http://"))
	through := *f.s3
	through.Endpoint = "http://" + f.bucket.address
	f.location = through.URL(bucket, "")
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
	f.all = f.allTroubles(t)
}

// goesOn reports whether mgmtctl has to be killed more often, or a trouble has yet to happen.
func (f *toAndFro) goesOn() bool {
	return f.killed() < killsToAndFro || len(f.missed()) > 0 || len(f.happened) < len(f.all)
}

// missed returns the phases in which mgmtctl was not killed often enough.
func (f *toAndFro) missed() []string {
	return slices.DeleteFunc(slices.Clone(movePhases),
		func(phase string) bool { return f.kills[phase] >= killsInPhase })
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
		if time.Since(f.began) > longestTest {
			t.Fatalf("no end after %s and %d kills: %v", longestTest, f.killed(), f.kills)
		}
		since := time.Now()
		out, killed := f.run(t, o, kills == mostKillsWay, args...)
		phase := o.lastPhase(since)
		t.Logf("%s from %s: killed %t, exit code %d, phase %s, after %s", strings.Join(args[:2], " "),
			from.Name(), killed, out.code, phase, time.Since(since).Round(time.Millisecond))
		if killed {
			kills++
			f.kills[phase]++
		}
		switch {
		case !killed && out.code == codeDone:
			return
		case !o.begun() && args[0] == "operation": // it was killed before it had the journal
		case !o.begun(), out.code == codeUsage && strings.Contains(out.stderr, "run the move again"):
			args = run // it was killed before it had a plan
		case killed && phase != noPhase && f.killed()%killsToLose == 0: // the host is lost, too
			f.lost++
			o = f.host(t)
			args = slices.Concat([]string{"operation", "resume", o.listed("running", flags)}, flags)
		default:
			args = slices.Concat([]string{"operation", "resume", "latest"}, flags)
		}
	}
}

// run runs a command, lets a trouble happen meanwhile, and kills the command: at a random moment,
// or in a phase in which none was killed often enough. It does not kill a command that is to end.
func (f *toAndFro) run(t *testing.T, o *operator, ends bool, args ...string) (out output,
	killed bool) {
	t.Helper()
	lived := time.Duration(f.random.Int64N(int64(longestLife)))
	heal := f.meddle(t, lived)
	defer heal()
	missed := f.missed()
	switch {
	case ends || !f.goesOn():
		if out, killed = o.runFor(longestRun, args...); killed {
			t.Fatalf("no end after %s:\n%s", longestRun, out.text())
		}
		return out, false
	case f.killed() < killsAtRandom || len(missed) == 0:
		return o.runFor(lived, args...)
	}
	return o.runInto(missed, args...)
}

// trouble is something that happens to a server, or to the network to it.
type trouble struct {
	name       string
	begin, end func()
}

// allTroubles returns each trouble with each server.
func (f *toAndFro) allTroubles(t *testing.T) (all []trouble) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	add := func(server string, n *network, kill, restart func()) {
		heal := func() { n.heal(t) }
		all = append(all, trouble{server + " is killed", kill, restart},
			trouble{server + " refuses connections", n.refuse, heal},
			trouble{server + " is silent", n.silence, heal})
	}
	for _, m := range []*lab.Mgmt{f.source, f.target} {
		add("the API server of "+m.Name(), f.networks[m], func() { check(m.KillAPIServer()) },
			func() { check(m.RestartAPIServer(t.Context())) })
	}
	add("the S3 server", f.bucket, f.s3.Kill, func() { check(f.s3.Restart(t.Context())) })
	return all
}

// meddle lets a trouble happen while every second command runs, within a time. All troubles happen
// before one happens again. The function that it returns ends the trouble.
func (f *toAndFro) meddle(t *testing.T, within time.Duration) (end func()) {
	t.Helper()
	if f.runs++; f.runs%2 == 0 {
		return func() {}
	}
	if len(f.troubles) == 0 {
		f.troubles = slices.Clone(f.all)
		f.random.Shuffle(len(f.troubles), func(i, j int) {
			f.troubles[i], f.troubles[j] = f.troubles[j], f.troubles[i]
		})
	}
	next := f.troubles[0]
	before := time.Duration(f.random.Int64N(int64(within) + 1))
	away := shortestTrouble + time.Duration(f.random.Int64N(int64(longestTrouble-shortestTrouble)))
	over, happened := make(chan struct{}), make(chan bool, 1)
	go func() {
		select {
		case <-over:
			happened <- false
			return
		case <-time.After(before):
		}
		t.Logf("%s for %s", next.name, away.Round(time.Millisecond))
		next.begin()
		select {
		case <-over:
		case <-time.After(away):
		}
		next.end()
		happened <- true
	}()
	return func() {
		close(over)
		if <-happened {
			f.troubles = f.troubles[1:]
			f.happened[next.name]++
		}
	}
}
