package catalog

import (
	"cmp"
	"maps"
	"slices"
)

// Progress counts one thing that an operation does.
type Progress struct {
	// What is counted, for example "objects created".
	What string `json:"what"`
	Done int64  `json:"done"`
	// Total is 0 when unknown.
	Total int64 `json:"total,omitempty"`
}

// liveProgress is the progress of a run. It is in memory, because a counter that changes a thousand
// times a second must not fsync each time. It is stored with the next write to the operation, which
// is the end of a step at the latest.
type liveProgress struct {
	counts map[string]Progress
	// revision of each count, from 1, so that a watcher finds the counts that it has not seen.
	revisions map[string]int
}

// setProgress sets a count; watchers poll it.
func (c *Catalog) setProgress(id OperationID, p Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := c.progress[id]
	if live == nil {
		live = &liveProgress{counts: map[string]Progress{}, revisions: map[string]int{}}
		c.progress[id] = live
	}
	if live.counts[p.What] != p {
		live.counts[p.What] = p
		live.revisions[p.What]++
	}
}

// progressSince returns the counts that changed since the revisions in seen, sorted, and updates
// seen.
func (c *Catalog) progressSince(id OperationID, seen map[string]int) []Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := c.progress[id]
	if live == nil {
		clear(seen)
		return nil
	}
	var news []Progress
	for what, revision := range live.revisions {
		if seen[what] != revision {
			seen[what] = revision
			news = append(news, live.counts[what])
		}
	}
	sortProgress(news)
	return news
}

// mergedProgress returns the stored progress, overridden by that in memory.
func (c *Catalog) mergedProgress(id OperationID, stored []Progress) []Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := c.progress[id]
	if live == nil {
		return stored
	}
	merged := maps.Clone(live.counts)
	for _, p := range stored {
		if _, newer := merged[p.What]; !newer {
			merged[p.What] = p
		}
	}
	list := slices.Collect(maps.Values(merged))
	sortProgress(list)
	return list
}

func (c *Catalog) addLiveProgress(op *Operation) {
	op.Progress = c.mergedProgress(op.ID, op.Progress)
}

func sortProgress(list []Progress) {
	slices.SortFunc(list, func(a, b Progress) int { return cmp.Compare(a.What, b.What) })
}
