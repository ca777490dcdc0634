package retention

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Amounts counts what is stored, by what it is for.
type Amounts map[store.Class]Amount

func (a Amounts) add(class store.Class, size int64) {
	sum := a[class]
	sum.add(size)
	a[class] = sum
}

// Usage is what a store holds, and for whom. It holds a few bytes for each pack, shard and tree
// while it is counted, and afterwards for each snapshot.
type Usage struct {
	// Stored are all keys of the bucket.
	Stored Amounts
	// Sources are by UID.
	Sources []*SourceUsage
	// Snapshots are by source, newest first.
	Snapshots []SnapshotUsage
	// Unnamed is content that no snapshot names. With findings, one that cannot be read may name it.
	Unnamed Amount
	// SeveralSources is content that snapshots of several sources name; it counts for none of them.
	SeveralSources Amount
	// Days are the days in UTC on which something was written that is still stored, newest first.
	Days []DayUsage
	// Findings are snapshots that cannot be read.
	Findings []object.Finding
}

// SourceUsage is what is stored for one source.
type SourceUsage struct {
	UID string
	// Name is that of the newest snapshot that can be read.
	Name                  string
	Snapshots, Unreadable int64
	// Scopes are those of the snapshots that can be read, whole first, then by id.
	Scopes []*ScopeUsage
	Stored Amounts
	// Shared is content that more than one of its snapshots names.
	Shared Amount
}

// ScopeUsage counts the snapshots of one scope.
type ScopeUsage struct {
	ID string
	// Schedule and Newest are of the newest of them by the clocks of their writers.
	Schedule  string
	Newest    time.Time
	Snapshots int64
}

// SnapshotUsage is one snapshot.
type SnapshotUsage struct {
	Snapshot
	// Alone is what its removal alone would free: its envelope, and what no other snapshot names.
	Alone Amount
}

// DayUsage is what was written on one day by the clock of the storage.
type DayUsage struct {
	Day     string // "2006-01-02"
	Written Amount
}

// several takes the place of an index when there is more than one.
const several = -1

// namer is who names a key: indexes of a snapshot and of a source, or several.
type namer struct{ snapshot, source int32 }

// digest is the hash in the name of a key, in a quarter of the bytes of the key.
type digest [32]byte

func digestOf(k store.Key) (d digest) {
	_, _ = hex.Decode(d[:], []byte(k.SHA256())) // a Key has 64 hex digits
	return d
}

// measure is one run of Measure.
type measure struct {
	*Usage
	store    *store.Store
	mu       sync.Mutex // guards names and Findings while trees are read
	names    map[digest]namer
	bySource map[string]int32
	byKey    map[string]int // index of a snapshot by the key of its envelope
	days     map[string]Amount
}

// Measure counts what a store holds. It reads the envelopes and the trees, and lists the rest. What
// is written meanwhile may be counted as named by no snapshot. Errors are those of the bucket; a
// snapshot that cannot be read is a finding.
func Measure(ctx context.Context, st *store.Store) (*Usage, error) {
	o := Options{Store: st}
	if err := o.applyDefaults(); err != nil {
		return nil, err
	}
	list, err := listSnapshots(ctx, &o, nil)
	if err != nil {
		return nil, err
	}
	m := &measure{Usage: &Usage{Stored: Amounts{}}, store: st, names: map[digest]namer{},
		bySource: map[string]int32{}, byKey: map[string]int{}, days: map[string]Amount{}}
	for _, s := range list {
		m.addSnapshot(s)
	}
	if err := m.readTrees(ctx); err != nil {
		return nil, err
	}
	if err := st.List(ctx, m.addKey); err != nil {
		return nil, err
	}
	for _, day := range slices.Backward(slices.Sorted(maps.Keys(m.days))) {
		m.Days = append(m.Days, DayUsage{Day: day, Written: m.days[day]})
	}
	slices.SortFunc(m.Findings, func(a, b object.Finding) int {
		return strings.Compare(a.Message, b.Message)
	})
	return m.Usage, nil
}

// addSnapshot counts a snapshot of the list, which is by source.
func (m *measure) addSnapshot(s Snapshot) {
	i, ok := m.bySource[s.Key.Source]
	if !ok {
		i = int32(len(m.Sources))
		m.bySource[s.Key.Source] = i
		m.Sources = append(m.Sources, &SourceUsage{UID: s.Key.Source, Stored: Amounts{}})
	}
	source := m.Sources[i]
	source.Snapshots++
	m.byKey[s.Key.String()] = len(m.Snapshots)
	m.Snapshots = append(m.Snapshots, SnapshotUsage{Snapshot: s})
	if s.Envelope == nil {
		m.unreadable(s, s.Err)
		return
	}
	source.Name = cmp.Or(source.Name, s.Envelope.Source.Name) // newest first
	id := s.Envelope.ScopeID()
	at, found := slices.BinarySearchFunc(source.Scopes, id, func(u *ScopeUsage, id string) int {
		return compareScopes(u.ID, id)
	})
	if !found {
		u := &ScopeUsage{ID: id, Newest: s.Key.Time}
		if s.Envelope.Scope != nil {
			u.Schedule = s.Envelope.Scope.Schedule
		}
		source.Scopes = slices.Insert(source.Scopes, at, u)
	}
	source.Scopes[at].Snapshots++
}

// compareScopes orders ids of scopes, whole first.
func compareScopes(a, b string) int {
	if (a == store.ScopeWhole) != (b == store.ScopeWhole) {
		if a == store.ScopeWhole {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

func (m *measure) unreadable(s Snapshot, err error) {
	m.Sources[m.bySource[s.Key.Source]].Unreadable++
	m.Findings = append(m.Findings, object.Finding{Severity: object.Error,
		Code: object.CodeEnvelopeUnreadable, Message: fmt.Sprintf("%s: what it names is not known: %v",
			s.Key, err), Hint: (&BlockedError{}).Hint()})
}

// readTrees reads each tree once and notes who names its keys.
func (m *measure) readTrees(ctx context.Context) error {
	byTree := map[store.Key][]int{} // several snapshots may name one
	for i, s := range m.Snapshots {
		if s.Envelope != nil {
			byTree[s.Envelope.Tree] = append(byTree[s.Envelope.Tree], i)
		}
	}
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	for key, snapshots := range byTree {
		g.Go(func() error {
			tree, err := m.store.GetTree(gctx, key)
			m.mu.Lock()
			defer m.mu.Unlock()
			switch {
			case store.OfStore(gctx, err) != nil:
				return err
			case err != nil:
				for _, i := range snapshots {
					m.unreadable(m.Snapshots[i].Snapshot, err)
				}
				return nil
			}
			for _, i := range m.two(snapshots) {
				m.name(key, i)
				for _, k := range tree.Shards {
					m.name(k, i)
				}
				for _, k := range tree.Packs {
					m.name(k, i)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// two returns the first two snapshots of each source. Of a source that nobody changes, thousands of
// snapshots may name one tree, and a third one changes nothing.
func (m *measure) two(snapshots []int) []int {
	count := map[string]int{}
	return slices.DeleteFunc(slices.Clone(snapshots), func(i int) bool {
		source := m.Snapshots[i].Key.Source
		count[source]++
		return count[source] > 2
	})
}

// name notes that a snapshot names a key.
func (m *measure) name(k store.Key, snapshot int) {
	now := namer{int32(snapshot), m.bySource[m.Snapshots[snapshot].Key.Source]}
	d := digestOf(k)
	was, ok := m.names[d]
	if ok && was.snapshot != now.snapshot {
		if now.snapshot = several; was.source != now.source {
			now.source = several
		}
	}
	m.names[d] = now
}

// addKey counts one key of the bucket.
func (m *measure) addKey(k store.StoredKey) error {
	m.Stored.add(k.Class, k.Size)
	if k.Modified.Unix() > 0 {
		day := k.Modified.UTC().Format(time.DateOnly)
		sum := m.days[day]
		sum.add(k.Size)
		m.days[day] = sum
	}
	if i, ok := m.byKey[k.Key]; ok {
		m.Snapshots[i].Alone.add(k.Size)
	}
	if i, ok := m.bySource[k.Source]; ok {
		m.Sources[i].Stored.add(k.Class, k.Size)
	}
	switch k.Class {
	case store.ClassPack, store.ClassShard, store.ClassTree:
		m.addContent(k)
	default: // no snapshot names a record
	}
	return nil
}

func (m *measure) addContent(k store.StoredKey) {
	by, ok := m.names[digestOf(store.Key(k.Key))]
	switch {
	case !ok:
		m.Unnamed.add(k.Size)
		return
	case by.source == several:
		m.SeveralSources.add(k.Size)
		return
	}
	source := m.Sources[by.source]
	source.Stored.add(k.Class, k.Size)
	if by.snapshot == several {
		source.Shared.add(k.Size)
	} else {
		m.Snapshots[by.snapshot].Alone.add(k.Size)
	}
}
