package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/e2e/lab"
)

// run is one command that was measured.
type run struct {
	took time.Duration
	peak int64 // bytes resident at most
}

func (b *bench) mgmtctl(ctx context.Context, args ...string) (run, error) {
	return b.run(ctx, b.Mgmtctl, args...)
}

// run runs a program of mgmtctl's command line, of this version or of the baseline.
func (b *bench) run(ctx context.Context, program string, args ...string) (run, error) {
	var out bytes.Buffer
	cmd := b.command(ctx, program, args, &out, &out)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return run{}, fmt.Errorf("start mgmtctl %s: %w", args[0], err)
	}
	ended, peak := make(chan struct{}), make(chan int64)
	go func() { peak <- peakMemory(cmd.Process.Pid, ended) }()
	err := cmd.Wait()
	r := run{took: time.Since(begin)}
	close(ended)
	if r.peak = <-peak; err != nil {
		return run{}, fmt.Errorf("run mgmtctl %s: %w\n%s", args[0], err, out.String())
	}
	return r, nil
}

// peakMemory reads the peak memory of a process until it has ended. What it holds in its last
// moment is not seen.
func peakMemory(pid int, ended <-chan struct{}) (peak int64) {
	for {
		if now, err := lab.PeakMemory(pid); err == nil {
			peak = max(peak, now)
		}
		select {
		case <-ended:
			return peak
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// output runs a program and returns what it printed.
func (b *bench) output(ctx context.Context, program string, args ...string) ([]byte, error) {
	var out, talk bytes.Buffer
	if err := b.command(ctx, program, args, &out, &talk).Run(); err != nil {
		return nil, fmt.Errorf("run mgmtctl %s: %w\n%s", args[0], err, talk.String())
	}
	return out.Bytes(), nil
}

func (b *bench) command(ctx context.Context, program string, args []string,
	out, talk *bytes.Buffer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), b.s3.Env()...)
	cmd.Stdout, cmd.Stderr = out, talk
	return cmd
}

// repeat gives the median.
func (b *bench) repeat(once func() (time.Duration, error)) (time.Duration, error) {
	var all []time.Duration
	for range b.Repeat {
		d, err := once()
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	return median(all), nil
}

func median[T cmp.Ordered](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// place is a store and a catalog of its own, and the mgmtctl that uses them.
type place struct {
	bench   *bench
	name    string
	catalog string
	mgmtctl string
}

func (b *bench) newPlace(mgmtctl string) *place {
	b.stores++
	name := fmt.Sprintf("store-%d", b.stores)
	return &place{bench: b, name: name, catalog: b.path(name + ".db"), mgmtctl: mgmtctl}
}

func (p *place) snapshot(ctx context.Context) (run, error) {
	signing, err := p.bench.signing()
	if err != nil {
		return run{}, err
	}
	return p.bench.run(ctx, p.mgmtctl, append([]string{"snapshot", "create", "--standalone",
		"--store", p.bench.s3.URL(bucketName, p.name), "--catalog", p.catalog,
		"--source-kubeconfig", p.bench.lab.Mgmt(source).Kubeconfig()}, signing...)...)
}

// signing are the flags with the keys that write to a store.
func (b *bench) signing() ([]string, error) {
	recipient, err := os.ReadFile(b.path("keys/recipient.txt"))
	if err != nil {
		return nil, fmt.Errorf("read recipient: %w", err)
	}
	return []string{"--recipient", strings.TrimSpace(string(recipient)), "--signing-key",
		b.path("keys/signing.key")}, nil
}

// wrote is what is in a store and was not before.
type wrote struct {
	keys  int
	bytes int64
}

func (p *place) written(before map[string]int64) (wrote, error) {
	files, err := p.files()
	var w wrote
	for name, size := range files {
		if _, was := before[name]; !was {
			w.keys++
			w.bytes += size
		}
	}
	return w, err
}

// files are the keys of the store and their sizes, as the S3 server has them on its disk.
func (p *place) files() (map[string]int64, error) {
	files := map[string]int64{}
	err := filepath.WalkDir(filepath.Join(p.bench.s3.Root(), bucketName, p.name),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				files[path] = info.Size()
			}
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("read bucket: %w", err)
	}
	return files, nil
}
