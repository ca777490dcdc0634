package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// recordsDown and recordsUp are the age at which the ownership records are read again, while a
	// management cluster does not answer and while all do: before one comes back they have to be
	// known already.
	recordsDown, recordsUp = 30 * time.Second, 5 * time.Minute
	// recordsTick is how often it is looked whether that is due.
	recordsTick = time.Second
	// recordsAgain is the time between two reads when the first one failed.
	recordsAgain = 10 * time.Second
)

// locationOwners are the ownership records of a location, as they were read.
type locationOwners struct {
	store   *store.Store
	records map[string]ownership.Record
	began   time.Time // of the read
	version int       // counts the reads that found other records
}

// ownerCache has the ownership records of all locations of a daemon, and reads them again when they
// are old. Each location is read by itself: a store that is slow or does not answer delays neither
// the others nor those who ask for what was read last.
type ownerCache struct {
	locations []Location
	read      func(ctx context.Context, l *Location) (locationOwners, error)
	log       *slog.Logger

	mu      sync.Mutex                // guards what follows
	changed time.Time                 // records that were read before it are old
	down    map[string]bool           // management clusters that do not answer, by name
	records map[string]locationOwners // by name of the location
}

func newOwnerCache(locations []Location, read func(ctx context.Context, l *Location) (
	locationOwners, error), log *slog.Logger) *ownerCache {
	return &ownerCache{locations: locations, read: read, log: log, down: map[string]bool{},
		records: map[string]locationOwners{}}
}

// outdate makes all records old: a new epoch was read or written, or a management cluster is back.
func (c *ownerCache) outdate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = time.Now()
}

// setDown notes whether a management cluster answers.
func (c *ownerCache) setDown(name string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.down, name); down {
		c.down[name] = true
	}
}

// cached returns the ownership records that were read last, by location.
func (c *ownerCache) cached() map[string]locationOwners {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.records)
}

// due reports whether the records of a location are to be read.
func (c *ownerCache) due(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, known := c.records[name]
	age := recordsUp
	if len(c.down) > 0 {
		age = recordsDown
	}
	return !known || !have.began.After(c.changed) || time.Since(have.began) >= age
}

// run reads until ctx ends.
func (c *ownerCache) run(ctx context.Context) {
	var readers sync.WaitGroup
	for i := range c.locations {
		readers.Go(func() { c.readLocation(ctx, &c.locations[i]) })
	}
	readers.Wait()
}

func (c *ownerCache) readLocation(ctx context.Context, l *Location) {
	failed, wait := "", time.Duration(0)
	for retry.Sleep(ctx, wait) == nil {
		if wait = recordsTick; !c.due(l.Name) {
			continue
		}
		next, err := c.readSafely(ctx, l)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, store.ErrStoreMissing): // before the first snapshot
			wait = recordsAgain
		case err != nil:
			if err.Error() != failed {
				c.log.Error("read the ownership records", "location", l.Name, "error", err)
			}
			failed, wait = err.Error(), recordsAgain
		default:
			failed = ""
			c.keep(l.Name, next)
		}
	}
}

// readSafely is read, with a panic as its error: the daemon reads records that others wrote.
func (c *ownerCache) readSafely(ctx context.Context, l *Location) (next locationOwners, err error) {
	err = task.Call(func() (err error) {
		next, err = c.read(ctx, l)
		return err
	})
	return next, err
}

func (c *ownerCache) keep(name string, next locationOwners) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, known := c.records[name]
	next.version = have.version
	if !known || !maps.EqualFunc(have.records, next.records, sameRecord) {
		next.version++
	}
	c.records[name] = next
}

func sameRecord(a, b ownership.Record) bool {
	return a.By == b.By && a.Epoch == b.Epoch && a.Trusted == b.Trusted && a.Seen == b.Seen &&
		(a.Damaged == nil) == (b.Damaged == nil)
}

func (s *Server) readOwners(ctx context.Context, l *Location) (o locationOwners, err error) {
	o.began = time.Now()
	if o.store, err = s.openLocation(ctx, l, nil, false); err == nil {
		o.records, err = ownership.Owners(ctx, o.store)
	}
	return o, err
}
