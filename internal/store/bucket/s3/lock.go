package s3

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
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
	if content == 0 {
		return time.Time{}
	}
	if !layout.MayBeReused(key) {
		return time.Now().AddDate(0, 0, b.options.RetentionDays)
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

// Retain implements Retainer. It retains the newest version.
func (b *Bucket) Retain(ctx context.Context, key string) (time.Time, error) {
	if err := b.begin(ctx, "retain", key); err != nil {
		return time.Time{}, err
	}
	envelope, content := b.Retention()
	if content == 0 {
		return time.Time{}, nil
	}
	if err := b.checkLock(ctx); err != nil {
		return time.Time{}, err
	}
	info, lock, err := b.retained(ctx, "retain", key, "")
	if err != nil {
		return time.Time{}, err
	}
	// An attacker who can overwrite keys must not make us retain other bytes in place of ours.
	want, sum := layout.Key(key).SHA256(), info.ChecksumSHA256
	if raw, err := base64.StdEncoding.DecodeString(sum); want != "" && sum != "" && err == nil &&
		hex.EncodeToString(raw) != want {
		return time.Time{}, &bucket.CorruptError{Key: key, Reason: layout.ReasonHash}
	}
	now := time.Now()
	if !lock.until.Before(now.Add(envelope)) {
		return lock.until, nil
	}
	mode := lock.mode // not changed: that needs a right of its own
	if mode == "" {
		mode = b.lockMode()
	}
	until := now.Add(content).UTC().Truncate(time.Second)
	err = b.do(ctx, "retain", key, 0, func(ctx context.Context) error {
		o := minio.PutObjectRetentionOptions{Mode: &mode, RetainUntilDate: &until,
			VersionID: info.VersionID}
		return b.client.PutObjectRetention(ctx, b.options.Bucket, b.key(key), o)
	})
	return until, b.lockMissing(err)
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
			minio.StatObjectOptions{VersionID: version, Checksum: true})
		h := headerOf(ctx)
		lock = retention{mode: minio.RetentionMode(h.Get("X-Amz-Object-Lock-Mode")),
			held: h.Get("X-Amz-Object-Lock-Legal-Hold") == "ON"}
		lock.until, _ = time.Parse(time.RFC3339, h.Get("X-Amz-Object-Lock-Retain-Until-Date"))
		return err
	})
	return info, lock, err
}
