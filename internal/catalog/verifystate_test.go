package catalog

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/store"
)

func TestReadingAStateWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ScheduleState(t.Context(), "nightly"); !errors.Is(err, ErrNotFound) {
		t.Errorf("state of a schedule that is not recorded: %v", err)
	}
	if _, err := c.VerifyState(t.Context(), "disk/uid"); !errors.Is(err, ErrNotFound) {
		t.Errorf("state of a verify that is not recorded: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file changed, %v", err)
	}
}

func TestVerifyStateSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	want, err := c.UpdateVerify(t.Context(), "disk/uid", func(s *VerifyState) {
		s.LastRun, s.LastOperation = at, "12ab00000000"
	})
	if err != nil {
		t.Fatal(err)
	}
	closeTest(t, c)
	c = openPath(t, path)
	got, err := c.VerifyState(t.Context(), "disk/uid")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("after reopen: %v\n%s", err, diff)
	}
}

// openOld opens a catalog of an older schema version, which write fills.
func openOld(t *testing.T, version uint32, write func(*bolt.Tx) error) *Catalog {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	err := c.update(t.Context(), func(tx *bolt.Tx) error {
		return errors.Join(write(tx),
			tx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint32(nil, version)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return openPath(t, path)
}

func TestMigrationMovesVerifyStatesOutOfTheSchedules(t *testing.T) {
	c := openOld(t, 4, func(tx *bolt.Tx) error {
		schedules := tx.Bucket(bucketSchedules)
		err := tx.DeleteBucket(bucketVerifies)
		for name, value := range map[string]string{
			"nightly":              `{"name":"nightly","seen":"2026-02-01T00:00:00Z"}`,
			"verify/disk/uid":      `{"name":"verify/disk/uid","seen":"2026-02-01T00:00:00Z","lastRun":"2026-03-01T03:00:00Z","lastSuccess":"2026-02-28T03:00:00Z","lastError":"1 of 3 keys","lastOperation":"12ab00000000"}`,
			"verify/disk/uid/full": `{"name":"verify/disk/uid/full","seen":"2026-02-01T00:00:00Z"}`,
			"verify/disk/damaged":  `{`,
		} {
			err = errors.Join(err, schedules.Put([]byte(name), []byte(value)))
		}
		return err
	})
	got, err := c.VerifyState(t.Context(), "disk/uid")
	want := VerifyState{Name: "disk/uid", LastRun: time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC),
		LastSuccess: time.Date(2026, 2, 28, 3, 0, 0, 0, time.UTC), LastError: "1 of 3 keys",
		LastOperation: "12ab00000000"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := c.VerifyState(t.Context(), "disk/uid/full"); err != nil {
		t.Errorf("full: %v", err)
	}
	if _, err := c.VerifyState(t.Context(), "disk/damaged"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a damaged state is left: %v", err)
	}
	if _, err := c.ScheduleState(t.Context(), "nightly"); err != nil {
		t.Errorf("schedule: %v", err)
	}
	if _, err := c.ScheduleState(t.Context(), "verify/disk/uid"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the old record is left: %v", err)
	}
}

// TestACycleGoesOnWithTheNextPart: and a cycle of another number of parts begins at its first.
func TestACycleGoesOnWithTheNextPart(t *testing.T) {
	var c VerifyCycle
	began, ended := time.Unix(1e9, 0), time.Unix(1e9+60, 0)
	for part := 1; part <= 3; part++ {
		s := c.Subset(3)
		if s != (store.Subset{Part: part, Of: 3}) || !c.Completed.IsZero() {
			t.Fatalf("part %d: %v, %+v", part, s, c)
		}
		c.Passed(s, began, ended)
	}
	if !c.Completed.Equal(ended) || c.Subset(3).Part != 1 {
		t.Errorf("after the last part: %+v", c)
	}
	c.Passed(c.Subset(3), began, ended)
	if got := c.Subset(4); got != (store.Subset{Part: 1, Of: 4}) {
		t.Errorf("a cycle of 4 parts begins at %v", got)
	}
}
