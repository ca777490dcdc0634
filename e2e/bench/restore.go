package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What a restore has to reach, as parts of the throughput of the floor, and its memory.
const (
	writingGoal = 0.85
	wholeGoal   = 0.65
	memoryGoal  = "under 200 at 20,000 objects"
)

// restored is one restore that was measured.
type restored struct {
	run
	writing time.Duration // of the steps that create objects and write the status of Clusters
}

// restores measures a restore into an empty management cluster of each size, and how its time
// grows.
func restores(ctx context.Context, opts Options) error {
	var first struct {
		objects int64
		each    time.Duration
	}
	for _, n := range opts.RestoreObjects {
		f, r, err := restoreSize(ctx, opts, n)
		if err != nil {
			return err
		}
		each := r.took / time.Duration(f.objects)
		if first.objects == 0 {
			first.objects, first.each = f.objects, each
			continue
		}
		(&report{out: opts.Out}).line("  growth", 0, "an object takes %.2f of the time that it takes "+
			"with %d objects (no more than 1)", float64(each)/float64(first.each), first.objects)
	}
	return nil
}

func restoreSize(ctx context.Context, opts Options, objects int) (f floor, r restored, err error) {
	b := &bench{Options: opts, applied: true}
	start := func(ctx context.Context) error { return b.start(ctx, objects) }
	err = b.with(ctx, start, func(ctx context.Context) error {
		f, r, err = b.restore(ctx)
		return err
	})
	return f, r, err
}

// restore measures the floor, then a restore, each into an empty management cluster. It measures
// the baseline's restore, too, and one whose journal is mirrored into the store.
func (b *bench) restore(ctx context.Context) (f floor, r restored, err error) {
	s := b.newPlace(b.Mgmtctl)
	if _, err := s.snapshot(ctx); err != nil {
		return f, r, err
	}
	if f, err = b.writeFloor(ctx); err != nil {
		return f, r, err
	}
	out := &report{out: b.Out}
	fmt.Fprintf(b.Out, "\nRestore of %d objects\n", f.objects)
	out.line("floor: the needed requests", f.took, "%.0f objects/s: %d creates, %d of status, %d of "+
		"managedFields, %d at once", f.rate(), f.objects, f.status, f.fields, writes)
	plain := []string{"--trusted-key", b.path("keys/signing.pub")}
	mirrored, err := b.signing()
	if err != nil {
		return f, r, err
	}
	for _, p := range []struct {
		name, program string
		flags         []string
	}{
		{"baseline: ", filepath.Join(b.Baseline, "mgmtctl"), plain},
		{"mirrored: ", b.Mgmtctl, slices.Concat(mirrored, plain)},
		{"", b.Mgmtctl, plain},
	} {
		if p.program != b.Mgmtctl && b.Baseline == "" {
			continue
		}
		if r, err = b.restoreOnce(ctx, s, p.program, p.flags...); err != nil {
			return f, r, err
		}
		out.line(p.name+"restore, standalone", r.took,
			"%.0f objects/s, %.2f of the floor (at least %.2f)",
			float64(f.objects)/r.took.Seconds(), float64(f.took)/float64(r.took), wholeGoal)
		out.line("  its writing", r.writing, "%.0f objects/s, %.2f of the floor (at least %.2f)",
			float64(f.objects)/r.writing.Seconds(), float64(f.took)/float64(r.writing), writingGoal)
		out.line("  its peak memory", 0, "%d MiB (%s)", r.peak>>20, memoryGoal)
	}
	return f, r, nil
}

// restoreOnce restores the newest snapshot of a place into a new management cluster and leaves it
// paused there.
func (b *bench) restoreOnce(ctx context.Context, from *place, program string, keys ...string) (
	r restored, err error) {
	to := b.newPlace(program)
	m, err := b.lab.AddBare(ctx, to.name)
	if err != nil {
		return r, err
	}
	b.Progress("restore with " + program)
	if r.run, err = b.run(ctx, program, append([]string{"restore", "run", "--standalone", "--store",
		b.s3.URL(bucketName, from.name), "--catalog", to.catalog, "--identity",
		b.path("keys/identity.txt"), "--target-kubeconfig", m.Kubeconfig(), "--source-is-gone",
		"--force", "source-seen-recently", "--no-release", "--yes"}, keys...)...); err != nil {
		return r, err
	}
	if r.writing, err = b.writing(ctx, to); err != nil {
		return r, err
	}
	return r, m.KillAll()
}

// writing returns how long steps of the newest operation of a place wrote objects: the time in
// which at least one of them ran, by their events. The dry-run between the shared objects and the
// units is not part of it.
func (b *bench) writing(ctx context.Context, p *place) (took time.Duration, err error) {
	out, err := b.output(ctx, p.mgmtctl, "operation", "watch", "latest", "--standalone", "--catalog",
		p.catalog, "-o", "json")
	if err != nil {
		return 0, err
	}
	var history struct {
		Events []struct {
			Time            time.Time
			Step, StepState string
		}
	}
	if err := json.Unmarshal(out, &history); err != nil {
		return 0, fmt.Errorf("decode history: %w", err)
	}
	running, begun := 0, time.Time{}
	for _, e := range history.Events {
		switch {
		case !strings.Contains(e.Step, "/create/") && !strings.HasSuffix(e.Step, "/cluster-status"):
		case e.StepState == "begun":
			if running++; running == 1 {
				begun = e.Time
			}
		default:
			if running--; running == 0 {
				took += e.Time.Sub(begun)
			}
		}
	}
	if took <= 0 || running != 0 {
		return 0, errors.New("measure the writing: the operation has no steps that create")
	}
	return took, nil
}
