package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mgmtd/mgmtd/e2e/lab"
)

// baseline measures the same snapshots with the programs of Options.Baseline and with these ones,
// in turns, so that whatever else slows the machine down meets both.
func (b *bench) baseline(ctx context.Context, r *report) error {
	before, now := b.newPlace(filepath.Join(b.Baseline, "mgmtctl")), b.newPlace(b.Mgmtctl)
	first, err := b.inTurns(before, now, func(p *place) (time.Duration, error) {
		*p = *b.newPlace(p.mgmtctl)
		run, err := p.snapshot(ctx)
		return run.took, err
	})
	if err != nil {
		return err
	}
	r.line("baseline: first, standalone", first.before, "this version takes %.2f of it",
		first.ratio())
	unchanged, err := b.inTurns(before, now, func(p *place) (time.Duration, error) {
		run, err := p.snapshot(ctx)
		return run.took, err
	})
	if err != nil {
		return err
	}
	r.line("baseline: unchanged, standalone", unchanged.before, "this version takes %.2f of it",
		unchanged.ratio())
	return b.baselineDaemon(ctx, r)
}

// baselineDaemon measures snapshots between which nothing happens, in a daemon of each version.
func (b *bench) baselineDaemon(ctx context.Context, r *report) error {
	before, now := b.newPlace(filepath.Join(b.Baseline, "mgmtctl")), b.newPlace(b.Mgmtctl)
	daemons := map[*place]*lab.Daemon{}
	for _, p := range []*place{before, now} {
		d, err := lab.StartDaemon(ctx, lab.DaemonOptions{
			Program: filepath.Join(filepath.Dir(p.mgmtctl), "mgmtd"), Dir: b.path(p.name),
			Keys: b.path("keys"), Mgmts: map[string]string{source: b.lab.Mgmt(source).Kubeconfig()},
			S3: b.s3, Bucket: bucketName, Prefix: p.name,
		})
		if err != nil {
			return err
		}
		defer d.Close()
		daemons[p] = d
	}
	take := func(p *place) (time.Duration, error) {
		run, err := b.run(ctx, p.mgmtctl, "snapshot", "create", "--address", daemons[p].Address())
		if err != nil {
			return 0, fmt.Errorf("%w\n%s", err, daemons[p].Log())
		}
		return run.took, nil
	}
	for _, p := range []*place{before, now} { // the first ones, which are not compared
		if _, err := take(p); err != nil {
			return err
		}
	}
	unchanged, err := b.inTurns(before, now, take)
	if err != nil {
		return err
	}
	r.line("baseline: unchanged, in the daemon", unchanged.before, "this version takes %.2f of it",
		unchanged.ratio())
	return nil
}

// pair are the medians of two versions.
type pair struct{ before, now time.Duration }

func (p pair) ratio() float64 { return float64(p.now) / float64(p.before) }

// inTurns measures the one and the other Repeat times, and changes who begins.
func (b *bench) inTurns(before, now *place,
	once func(*place) (time.Duration, error)) (pair, error) {
	took := map[*place][]time.Duration{}
	for i := range b.Repeat {
		order := []*place{before, now}
		if i%2 == 1 {
			order = []*place{now, before}
		}
		for _, p := range order {
			d, err := once(p)
			if err != nil {
				return pair{}, err
			}
			took[p] = append(took[p], d)
		}
	}
	return pair{before: median(took[before]), now: median(took[now])}, nil
}
