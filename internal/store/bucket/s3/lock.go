package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// LockMode says whom Object Lock binds.
type LockMode string

// Modes of Options.ObjectLock.
const (
	// LockGovernance lets who has the right BypassGovernanceRetention delete all the same; mgmtd
	// never uses it.
	LockGovernance LockMode = "governance"
	// LockCompliance binds everyone, the owner of the account too.
	LockCompliance LockMode = "compliance"
)

const (
	day        = 24 * time.Hour
	maxDays    = 36500 // of S3
	timeFormat = "2006-01-02T15:04:05Z"

	// retainMargin is the time that a snapshot may take from retaining what it reuses to its
	// envelope, and the difference allowed between the clocks of this host and the server.
	retainMargin = time.Hour
)

// checkRetention checks ObjectLock and RetentionDays. *UsageError.
func (o *Options) checkRetention() error {
	switch {
	case o.ObjectLock == "" && o.RetentionDays == 0:
		return nil
	case o.ObjectLock != LockGovernance && o.ObjectLock != LockCompliance && o.ObjectLock != "":
		return &bucket.UsageError{Text: "open S3 store: Object Lock mode " +
			quoted(string(o.ObjectLock)) +
			" is not known", Tip: "use governance or compliance"}
	case o.ObjectLock == "":
		return &bucket.UsageError{Text: "open S3 store: days of retention without an Object Lock mode",
			Tip: "give a mode, too: object-lock= in the store's URL, objectLockMode in the file, " +
				"governance or compliance", TipKey: object.HintStoreURL}
	case o.RetentionDays < 1 || o.RetentionDays > maxDays:
		return &bucket.UsageError{Text: fmt.Sprintf(
			"open S3 store: Object Lock needs days of retention, 1 to %d", maxDays),
			Tip:    "give the days, too: retention-days= in the store's URL, retentionDays in the file",
			TipKey: object.HintStoreURL}
	}
	return nil
}

func (b *Bucket) lockMode() minio.RetentionMode {
	return minio.RetentionMode(strings.ToUpper(string(b.options.ObjectLock)))
}

// Retention implements Retainer. Content is retained for up to eight days more: snapshots reuse it
// for a week at most, so that with many days it never has to be retained again.
func (b *Bucket) Retention() (envelope, content time.Duration) {
	days := time.Duration(b.options.RetentionDays) * day
	if days == 0 {
		return 0, 0
	}
	return days + retainMargin, days + min(max(days/4, day), 8*day)
}

// retainNew returns until when a new key is to be retained; zero when no retention is asked for.
func (b *Bucket) retainNew(key string) time.Time {
	_, content := b.Retention()
	if content == 0 || layout.MayGoAtOnce(key) {
		return time.Time{}
	}
	if !layout.MayBeReused(key) {
		return time.Now().Add(time.Duration(b.options.RetentionDays) * day)
	}
	return time.Now().Add(content)
}

// checkLock makes sure, once, that a bucket of which Object Lock is asked has it: a server that
// does not know it would ignore it. *UsageError.
func (b *Bucket) checkLock(ctx context.Context) error {
	if b.options.ObjectLock == "" || b.locks.Load() {
		return nil
	}
	var state string
	err := b.do(ctx, "get", "", 0, func(ctx context.Context) (err error) {
		state, _, _, _, err = b.client.GetObjectLockConfig(ctx, b.options.Bucket)
		return err
	})
	switch {
	case errors.Is(err, bucket.ErrDenied):
		// these credentials may not ask; the answer to the write shows it
	case err == nil && state != minio.Enabled || refused(err) || errors.Is(err, bucket.ErrNotFound):
		return b.noLock(err)
	case err != nil:
		return err
	}
	b.locks.Store(true)
	return nil
}

func (b *Bucket) noLock(err error) error {
	return &bucket.UsageError{
		Text: "write to store " + b.String() + ": Object Lock is asked for, and the bucket has none",
		Tip:  "create a bucket with Object Lock (it is versioned), or ask for no Object Lock", Err: err,
	}
}

// lockMissing turns what servers say to a write that is to be retained in a bucket without Object
// Lock into that.
func (b *Bucket) lockMissing(err error) error {
	if e, ok := errors.AsType[*bucket.Error](err); ok && b.options.ObjectLock != "" && e.Class == nil {
		if text := strings.ToLower(strings.ReplaceAll(err.Error(), " ", "")); strings.Contains(text,
			"objectlockconfiguration") {
			return b.noLock(err)
		}
	}
	return err
}

// proveLock makes sure, once, that the server retains what a write asked it to retain: a server
// that does not know the headers ignores them, and these credentials may not have been allowed to
// ask for the bucket's configuration. *UsageError.
func (b *Bucket) proveLock(ctx context.Context, key string) error {
	if b.options.ObjectLock == "" || b.proved.Load() {
		return nil
	}
	_, lock, err := b.retained(ctx, "retain", key, "")
	if err != nil {
		return err
	}
	if lock.until.IsZero() {
		visible, err := b.seesRetention(ctx, key)
		if err != nil {
			return err
		}
		if visible {
			return b.noLock(errors.New("the server accepted " + key + " and does not retain it"))
		}
	}
	b.proved.Store(true)
	return nil
}

// seesRetention reports whether the absence of a retention in a head means that there is none: a
// server does not show it to credentials without the right to see it.
func (b *Bucket) seesRetention(ctx context.Context, key string) (bool, error) {
	var until *time.Time
	err := b.do(ctx, "retain", key, 0, func(ctx context.Context) (err error) {
		_, until, err = b.client.GetObjectRetention(ctx, b.options.Bucket, b.key(key), "")
		if a, ok := ctx.Value(attemptKey{}).(*attempt); ok && a.status == http.StatusOK {
			return nil // also an answer that is none, of a server that does not know the request
		}
		return err
	})
	switch {
	case errors.Is(err, bucket.ErrDenied):
		return false, nil
	case err == nil:
		return until == nil || until.IsZero(), nil
	case refused(err), errors.Is(err, bucket.ErrNotFound):
		return true, nil
	}
	return false, err
}

// maxRetained is the most bytes of a key that is read to find out whether it is ours.
const maxRetained = 33 << 20

// ours returns the version of a key whose bytes have a SHA-256, with its lock, and whether it is
// the current one. The current bytes may be those of somebody who wrote over the key, and who
// chose whether the server has a checksum of them. ErrNotFound; *CorruptError when there is no such
// version.
func (b *Bucket) ours(ctx context.Context, op, key, sum string) (info minio.ObjectInfo,
	lock retention, current bool, err error) {
	info, lock, err = b.retained(ctx, op, key, "")
	if err != nil {
		return info, lock, false, err
	}
	have := sha256Of(info)
	if have == "" && info.Size <= maxRetained {
		data, err := bucket.ReadVersion(ctx, b, key, info.VersionID, maxRetained)
		if err != nil {
			return info, lock, false, err
		}
		have = layout.SHA256Hex(data)
	}
	if have == sum {
		return info, lock, true, nil
	}
	v, _, err := bucket.FindVersion(ctx, b, key, sum, maxRetained)
	if errors.Is(err, bucket.ErrNotFound) {
		err = &bucket.CorruptError{Key: key, Reason: layout.ReasonHash}
	}
	if err != nil {
		return info, lock, false, err
	}
	info, lock, err = b.retained(ctx, op, key, v.ID)
	info.VersionID = v.ID
	return info, lock, false, err
}

// Retain implements Retainer.
func (b *Bucket) Retain(ctx context.Context, key, sum string) (time.Time, error) {
	if err := b.begin(ctx, "retain", key); err != nil {
		return time.Time{}, err
	}
	_, content := b.Retention()
	if content == 0 {
		return time.Time{}, nil
	}
	if err := b.checkLock(ctx); err != nil {
		return time.Time{}, err
	}
	info, lock, current, err := b.ours(ctx, "retain", key, sum)
	if err != nil {
		return time.Time{}, err
	}
	until, err := b.extend(ctx, key, info.VersionID, lock)
	if err == nil && !current {
		err = &bucket.CorruptError{Key: key, Reason: layout.ReasonHash}
	}
	return until, err
}

// extend makes the lock of a version last for long enough.
func (b *Bucket) extend(ctx context.Context, key, version string, lock retention) (time.Time,
	error) {
	envelope, content := b.Retention()
	now := time.Now()
	if !lock.until.Before(now.Add(envelope)) {
		return lock.until, nil
	}
	mode := lock.mode // not changed: that needs a right of its own
	if mode == "" {
		mode = b.lockMode()
	}
	until := now.Add(content).UTC().Truncate(time.Second)
	err := b.do(ctx, "retain", key, 0, func(ctx context.Context) error {
		o := minio.PutObjectRetentionOptions{Mode: &mode, RetainUntilDate: &until, VersionID: version}
		return b.client.PutObjectRetention(ctx, b.options.Bucket, b.key(key), o)
	})
	if err != nil {
		return time.Time{}, b.lockMissing(err)
	}
	return until, nil
}

// RetainedUntil implements Retainer.
func (b *Bucket) RetainedUntil(ctx context.Context, key, sum string) (time.Time, error) {
	if err := b.begin(ctx, "retain", key); err != nil {
		return time.Time{}, err
	}
	_, lock, _, err := b.ours(ctx, "retain", key, sum)
	if _, ok := errors.AsType[*bucket.CorruptError](err); ok {
		err = &bucket.Error{Op: "retain", Key: key, Class: bucket.ErrNotFound, Err: err}
	}
	return lock.until, err
}

// retention is the Object Lock of one version. The zero value says that there is none, or that
// these credentials may not see it.
type retention struct {
	mode  minio.RetentionMode
	until time.Time
	held  bool // by a legal hold
}

// retained returns the head of a version, the newest by default, and its retention. It does not
// ask for the retention alone, because servers answer that in different ways.
func (b *Bucket) retained(ctx context.Context, op, key, version string) (info minio.ObjectInfo,
	lock retention, err error) {
	err = b.do(ctx, op, key, 0, func(ctx context.Context) (err error) {
		info, err = b.client.StatObject(ctx, b.options.Bucket, b.key(key),
			b.atRest.get(minio.StatObjectOptions{VersionID: version, Checksum: true}))
		h := headerOf(ctx)
		lock = retention{mode: minio.RetentionMode(h.Get("X-Amz-Object-Lock-Mode")),
			held: h.Get("X-Amz-Object-Lock-Legal-Hold") == "ON"}
		lock.until, _ = time.Parse(time.RFC3339, h.Get("X-Amz-Object-Lock-Retain-Until-Date"))
		return err
	})
	return info, lock, err
}
