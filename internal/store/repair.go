package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/task"
)

// RepairState is what can be done about a key that somebody hid or wrote over.
type RepairState string

// The states of a Repair.
const (
	// RepairPossible: an older version is proven to be the right one.
	RepairPossible RepairState = "possible"
	// RepairPruned: a trusted record says that the snapshot was removed on purpose. It stays away.
	RepairPruned RepairState = "pruned"
	// RepairLost: no version is proven to be the right one.
	RepairLost RepairState = "lost"
	// RepairUndeleted: the delete marker was removed.
	RepairUndeleted RepairState = "undeleted"
	// RepairCopied: the good version was written on top once more.
	RepairCopied RepairState = "copied"
	// RepairFailed: it was tried and did not succeed.
	RepairFailed RepairState = "failed"
)

// Repair is a key that somebody hid with a delete marker, or wrote over.
type Repair struct {
	Key    string
	Class  Class
	Source string // UID, where the key has one
	// Hidden reports a delete marker on top; otherwise somebody wrote over the key.
	Hidden bool
	State  RepairState
	// Reason says why in the states lost, pruned and failed.
	Reason string
	// Good is the version to bring back.
	Good bucket.Version
	// Versions are how many there are, with delete markers.
	Versions int

	markers []string // ids of the delete markers above Good, if nothing else is
}

// RepairPlan is what PlanRepair found.
type RepairPlan struct {
	// Versioned reports whether the bucket has versions at all. Without, nothing can be brought back.
	Versioned bool
	// Examined is how many keys have versions.
	Examined int
	Repairs  []Repair // in the order in which RunRepair works
}

// repairFolders are what PlanRepair examines, in the order in which RunRepair brings it back:
// what a snapshot needs before its envelope, and what was removed on purpose before all snapshots.
var repairFolders = []string{markerKey, record.PruneFolder, "packs/", "shards/", "trees/",
	layout.EnvelopeFolder, record.PinFolder, record.VerificationFolder, record.OwnerFolder,
	layout.OperationFolder}

// PlanRepair searches a versioned bucket for what delete markers hide and what was overwritten, and
// finds the version that is to be brought back: of a pack, a shard or a tree the one that has the
// hash of its name, of other documents one that a trusted key signed for that very key, of
// mgmtd.json one whose id such an envelope names. It changes nothing. A key with the one version
// that was written costs no request of its own. progress may be nil; it is called from one
// goroutine with how many keys were listed so far, and an error of it ends the search.
func (s *Store) PlanRepair(ctx context.Context, progress func(examined int) error) (*RepairPlan,
	error) {
	p := &repairPlanner{store: s, progress: progress, plan: &RepairPlan{}}
	var ok bool
	if p.bucket, ok = s.bucket.(bucket.Repairer); !ok {
		return p.plan, nil
	}
	var err error
	if p.plan.Versioned, err = p.bucket.HasVersions(ctx); err != nil || !p.plan.Versioned {
		return p.plan, err
	}
	if p.pruned, err = s.Pruned(ctx); err != nil {
		return nil, err
	}
	for _, folder := range repairFolders {
		if err := p.examineFolder(ctx, folder); err != nil {
			return nil, err
		}
	}
	return p.plan, nil
}

// repairReads is how many keys are examined at once. Each takes the memory of one document; a pack,
// shard or tree is hashed without being held.
const repairReads = 16

// repairPlanner is one PlanRepair.
type repairPlanner struct {
	store    *Store
	bucket   bucket.Repairer
	pruned   Pruned
	progress func(examined int) error
	plan     *RepairPlan
}

// examineFolder adds what is wrong with the keys of a folder to the plan, in the order of the list.
func (p *repairPlanner) examineFolder(ctx context.Context, folder string) error {
	g, gctx := task.WithContext(ctx)
	g.SetLimit(repairReads)
	var found []*Repair // in the order of the list; without a class when nothing is wrong
	err := p.bucket.ListVersions(gctx, folder, func(key string, versions []bucket.Version) error {
		class, source := classOf(key)
		if class == ClassOther && key != markerKey {
			return nil
		}
		p.plan.Examined++
		if p.progress != nil {
			if err := p.progress(p.plan.Examined); err != nil {
				return err
			}
		}
		if untouched(versions) {
			return nil
		}
		r := &Repair{}
		found = append(found, r)
		g.Go(func() error {
			wrong, err := p.examine(gctx, key, versions)
			if wrong == nil || err != nil {
				return err
			}
			*r = *wrong
			r.Key, r.Class, r.Source, r.Versions = key, class, source, len(versions)
			if class == ClassEnvelope && r.State == RepairPossible {
				err = p.store.explainRepair(gctx, p.bucket, r, p.pruned)
			}
			return err
		})
		return gctx.Err()
	})
	// The error of a key ends the list, too, and says more.
	if waited := g.Wait(); waited != nil {
		return waited
	}
	if err != nil {
		return err
	}
	for _, r := range found {
		if r.Class != "" {
			p.plan.Repairs = append(p.plan.Repairs, *r)
		}
	}
	return nil
}

// explainRepair marks an envelope that was removed on purpose.
func (s *Store) explainRepair(ctx context.Context, b bucket.Versioned, r *Repair,
	pruned Pruned) error {
	key, err := ParseEnvelopeKey(r.Key)
	if err != nil {
		return err
	}
	data, err := bucket.ReadVersion(ctx, b, r.Key, r.Good.ID, maxEnvelope)
	if err != nil {
		return err
	}
	e, err := s.openEnvelope(key, data)
	if err == nil && pruned.Explains(key.Source, e.Sequence) {
		r.State = RepairPruned
		r.Reason = fmt.Sprintf("a record says that snapshot number %d was removed", e.Sequence)
	}
	return err
}

// examine returns what is wrong with a key, or nil when its current version is the right one.
func (p *repairPlanner) examine(ctx context.Context, key string, versions []bucket.Version) (
	*Repair, error) {
	top, written := versions[0], writtenOf(versions)
	r := &Repair{Hidden: top.Deleted, State: RepairPossible}
	good, err := p.store.goodVersion(ctx, p.bucket, key, written)
	switch {
	case errors.Is(err, ErrNotFound):
		r.State, r.Reason = RepairLost, "no version of it is proven to be the right one"
		if layoutClass(key) == "" && !p.store.keys.CanTrust() {
			r.Reason += ": that takes a trusted key"
		}
		return r, nil
	case err != nil:
		return nil, err
	case !top.Deleted && good.ID == top.ID:
		return nil, nil //nolint:nilnil // what is on top is right
	}
	r.Good = good
	for _, v := range versions {
		if !v.Deleted {
			if v.ID != good.ID {
				r.markers = nil // what is below the markers is not the right version
			}
			break
		}
		r.markers = append(r.markers, v.ID)
	}
	return r, nil
}

// writtenOf returns the versions that are no delete markers.
func writtenOf(versions []bucket.Version) []bucket.Version {
	return slices.DeleteFunc(slices.Clone(versions), func(v bucket.Version) bool {
		return v.Deleted
	})
}

// untouched reports whether a key has the one version that was written, and nothing hides it.
func untouched(versions []bucket.Version) bool {
	return versions[0].Current && !versions[0].Deleted && len(writtenOf(versions)) == 1
}

// layoutClass is the kind of a key that is named after its content; empty for others.
func layoutClass(key string) Kind { return Key(key).Kind() }

// goodVersion returns the right one of the versions of a key, given newest first. The current one
// is preferred, so that what is whole is left alone; then the oldest, since keys are written once.
// Of ownership records it is the newest of those with the highest epoch. ErrNotFound.
func (s *Store) goodVersion(ctx context.Context, b bucket.Versioned, key string,
	written []bucket.Version) (good bucket.Version, err error) {
	order := slices.Clone(written)
	slices.Reverse(order)
	if len(order) > 1 && written[0].Current && !strings.HasPrefix(key, record.OwnerFolder) {
		order = append([]bucket.Version{written[0]}, order[:len(order)-1]...)
	}
	best := int64(0)
	left := mostRepairBytes
	for i, v := range order {
		if i == mostPrevious || v.Size > left {
			break
		}
		rank, read, err := s.judgeVersion(ctx, b, key, v)
		if err != nil {
			return good, err
		}
		left -= read
		if rank >= max(best, 1) {
			good, best = v, rank
		}
		if best == finalRank {
			break
		}
	}
	if best == 0 {
		return good, ErrNotFound
	}
	return good, nil
}

const (
	// mostRepairBytes bounds what is read of the versions of one key.
	mostRepairBytes = int64(8 * (33 << 20))
	// finalRank is that of a version beside which no other one can be better.
	finalRank = record.MaxEpoch + 1
)

// judgeVersion returns how good a version is, 0 for one that is not the right one, and how many
// bytes were read for that.
func (s *Store) judgeVersion(ctx context.Context, b bucket.Versioned, key string,
	v bucket.Version) (rank, read int64, err error) {
	content := layoutClass(key) != ""
	most := cmp.Or(documentSizes[layoutFolder(key)], int64(maxMarker))
	switch {
	case content:
		most = s.limits.maxStored
	case layoutFolder(key) == layout.OperationFolder:
		most = s.limits.maxStored + maxHead
	}
	if v.Size > most {
		return 0, 0, nil
	}
	// What cannot be read is not the right version.
	if content {
		sum, err := b.VersionSHA256(ctx, key, v.ID)
		if err == nil && sum == "" {
			read = v.Size
			sum, err = bucket.HashVersion(ctx, b, key, v.ID, most)
		}
		return rankOf(err == nil && sum == Key(key).SHA256()), read, fatal(ctx, err)
	}
	data, err := bucket.ReadVersion(ctx, b, key, v.ID, most)
	if err != nil {
		return 0, v.Size, fatal(ctx, err)
	}
	rank, err = s.judge(ctx, key, data)
	return rank, v.Size, err
}

// documentSizes are the largest sizes of documents, by folder.
var documentSizes = map[string]int64{
	layout.EnvelopeFolder: maxEnvelope, record.PruneFolder: maxPruneRecord,
	record.VerificationFolder: maxVerification, record.OwnerFolder: maxOwner,
	record.PinFolder: maxPin,
}

// layoutFolder is the first folder of a key, with its slash.
func layoutFolder(key string) string {
	folder, _, _ := strings.Cut(key, "/")
	return folder + "/"
}

// judge returns how good bytes are for a key; 0 when they are not proven to be right.
func (s *Store) judge(ctx context.Context, key string, data []byte) (int64, error) {
	if layoutClass(key) != "" {
		return rankOf(layout.SHA256Hex(data) == Key(key).SHA256()), nil
	}
	if !s.keys.CanTrust() {
		return 0, nil
	}
	switch layoutFolder(key) {
	case layout.EnvelopeFolder:
		k, err := ParseEnvelopeKey(key)
		if err != nil {
			return 0, nil //nolint:nilerr // not the key of an envelope
		}
		e, err := s.openProvenHidden(ctx, k, data)
		return rankOf(err == nil && e.Trust == Trusted), fatal(ctx, err)
	case record.OwnerFolder:
		o, err := s.openOwner(key, data, "")
		if err != nil || o.Trust != Trusted || !s.Vouches(o) {
			return 0, nil //nolint:nilerr // it proves nothing
		}
		return o.Epoch, nil
	case record.PruneFolder, record.PinFolder, record.VerificationFolder, layout.OperationFolder:
		signature, err := s.openRecord(key, data)
		return rankOf(err == nil && signature.Trust == Trusted), nil
	}
	return s.judgeMarker(data), nil
}

func rankOf(good bool) int64 {
	if good {
		return finalRank
	}
	return 0
}

// judgeMarker judges mgmtd.json: the store was opened by the right one.
func (s *Store) judgeMarker(data []byte) int64 {
	return rankOf(layout.SHA256Hex(data) == s.marker.sha256)
}
