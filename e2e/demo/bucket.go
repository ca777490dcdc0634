package demo

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// awaitSnapshots waits until the bucket has two snapshots, one of them not older than rest: its
// content is what the restore is compared with.
func (d *demo) awaitSnapshots(ctx context.Context, rest time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 8*every)
	defer cancel()
	for {
		times, err := d.snapshots()
		if err != nil {
			return err
		}
		if len(times) > len(d.story.stores) {
			size, err := d.bucketSize()
			if err != nil {
				return err
			}
			d.story.stores = append(d.story.stores, size)
		}
		if len(times) > 1 && times[len(times)-1].After(rest) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the snapshots of the schedule: %w; there are %d\n%s", ctx.Err(),
				len(times), d.daemon.Log())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// snapshots returns the times of all snapshots in the bucket, from the names of their envelopes.
func (d *demo) snapshots() ([]time.Time, error) {
	names, err := filepath.Glob(filepath.Join(d.s3.Root(), bucket, "snapshots", "*", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("read bucket: %w", err)
	}
	var times []time.Time
	for _, name := range names {
		text, _, _ := strings.Cut(filepath.Base(name), "-")
		taken, err := time.Parse("20060102T150405.000Z", text)
		if err != nil {
			return nil, fmt.Errorf("read bucket: %w", err)
		}
		times = append(times, taken)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times, nil
}

// bucketSize is the number of bytes in the bucket.
func (d *demo) bucketSize() (int64, error) {
	var size int64
	err := filepath.WalkDir(filepath.Join(d.s3.Root(), bucket), func(_ string, entry fs.DirEntry,
		err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure bucket: %w", err)
	}
	return size, nil
}
