package incremental

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// leaseFresh is the largest age of the youngest lease for which the leases prove anything. Their
// holders renew them every 2 to 10 seconds; the rest allows for clock skew.
const leaseFresh = 2 * time.Minute

// leaseFingerprint identifies the history of a source up to one resourceVersion. The components of
// a source renew their leases every few seconds. If the leases as of one resourceVersion are the
// same at two times, etcd was not restored from an older backup in between, except for the last
// seconds.
type leaseFingerprint struct {
	digest  string    // of the leases in kube-system; empty when they cannot be read
	renewed time.Time // of the youngest lease
}

// proof returns the digest to compare with later. It is empty when nobody renews the leases: they
// would be the same before and after a restore of etcd.
func (f leaseFingerprint) proof(now time.Time) string {
	if now.Sub(f.renewed).Abs() > leaseFresh {
		return ""
	}
	return f.digest
}

// verifyHistory reports whether the leases of the source as of a resourceVersion still have the
// digest that they had. It returns capture.ErrHistory if they have another one, and false if that
// is unknown.
func verifyHistory(ctx context.Context, source capture.Source, digest, at string) (bool, error) {
	if digest == "" {
		return false, nil
	}
	f, err := fingerprintLeases(ctx, source, at)
	if err == nil && f.digest != "" && f.digest != digest {
		return false, fmt.Errorf("%w: its leases at %s are not what they were", capture.ErrHistory, at)
	}
	return f.digest == digest, err
}

// fingerprintLeases lists the leases in kube-system as of a resourceVersion. The result is empty if
// the server does not serve them.
func fingerprintLeases(ctx context.Context, source capture.Source, at string) (leaseFingerprint,
	error) {
	var f leaseFingerprint
	digest, n := sha256.New(), 0
	_, err := source.List(ctx, kube.LeaseKind, kube.ListOptions{Namespace: "kube-system", Exact: at},
		func(raw []byte) error {
			n++
			if t, err := time.Parse(time.RFC3339Nano,
				gjson.GetBytes(raw, "spec.renewTime").String()); err == nil && t.After(f.renewed) {
				f.renewed = t
			}
			meta := gjson.GetBytes(raw, "metadata")
			_, err := fmt.Fprintf(digest, "%q %q %q\n", meta.Get("name").String(), meta.Get("uid").String(),
				meta.Get("resourceVersion").String())
			return err
		})
	switch {
	case errors.Is(err, kube.ErrExpired), errors.Is(err, kube.ErrExactRefused),
		apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return leaseFingerprint{}, nil
	case err != nil:
		return leaseFingerprint{}, err
	case n > 0:
		f.digest = hex.EncodeToString(digest.Sum(nil))
	}
	return f, nil
}
