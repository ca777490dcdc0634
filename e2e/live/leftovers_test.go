package live

import (
	"slices"
	"strings"
)

// Namespaces of the scenarios with leftovers.
const (
	leftReleasedNS = "left-released"
	leftAdoptedNS  = "left-adopted"
)

// testLeftReleased restores without a release, and releases what is left with restore release.
func (o *operator) testLeftReleased() {
	o.restore(codeDone, "--no-release", "--namespace", leftReleasedNS)
	o.run(codeDone, slices.Concat([]string{"restore", "release", "latest", "--yes",
		"--source-is-gone", "--force", "source-seen-recently"}, o.flags())...)
	o.assertRestored(o.t, o.before.In(leftReleasedNS), nil, leftReleasedNS)
}

// testLeftAdopted kills a restore without a release while it creates Machines. A restore with
// another catalog names what the first has left unfinished, or adopts all of it. Once the first has
// been resumed, the other one adopts its copies and releases them.
func (o *operator) testLeftAdopted() {
	o.runAndKill(moment{o.target, "Machine", leftAdoptedNS, created}, slices.Concat([]string{
		"restore", "run", "--yes", "--no-release", "--namespace", leftAdoptedNS}, o.flags())...)
	other := &operator{fixture: o.fixture, t: o.t, state: o.t.TempDir()}
	restore := slices.Concat([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently", "--namespace",
		leftAdoptedNS}, o.flags())
	if out := other.exec(o.t.Context(), other.state, restore...); out.code != codeDone {
		other.assertOutput(out, codeFindings)
		o.assertBlames(out, "left-by-operation", leftAdoptedNS, "")
		if !strings.Contains(out.stdout+out.stderr, "operation resume") {
			o.t.Errorf("no command resumes the first restore:\n%s", out.text())
		}
		o.t.Log("the other restore was refused until the first was resumed")
		o.run(codeDone, slices.Concat([]string{"operation", "resume", "latest"}, o.flags())...)
		other.run(codeDone, restore...)
	}
	o.assertRestored(o.t, o.before.In(leftAdoptedNS), nil, leftAdoptedNS)
}
