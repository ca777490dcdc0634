package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// leaseFresh is how long ago the youngest lease may have been renewed for leases to be a mark:
// their holders renew them every 2 to 10 seconds, and clocks differ a little.
const leaseFresh = 2 * time.Minute

// history is a moment in a source's history.
type history struct {
	// mark is made of the leases of the source's own components, which are renewed every few
	// seconds. When it is the same twice, nothing between was undone by restoring an older etcd,
	// but for the last seconds. It is "" when there is none to be had.
	mark    string
	renewed time.Time // of the youngest lease
}

// remembered is the mark to know the moment by later, if it is now: leases that nobody renews mark
// nothing.
func (h history) remembered(now time.Time) string {
	if now.Sub(h.renewed).Abs() > leaseFresh {
		return ""
	}
	return h.mark
}

// provenAt tells whether the source's history up to a moment is the one of a mark: errHistory if it
// is another one, false if it is not known.
func provenAt(ctx context.Context, source Source, mark, at string) (bool, error) {
	if mark == "" {
		return false, nil
	}
	h, err := historyAt(ctx, source, at)
	if err == nil && h.mark != "" && h.mark != mark {
		return false, fmt.Errorf("%w: its leases at %s are not what they were", errHistory, at)
	}
	return h.mark == mark, err
}

func historyAt(ctx context.Context, source Source, at string) (history, error) {
	var h history
	digest, n := sha256.New(), 0
	_, err := source.List(ctx, kube.LeaseKind, kube.ListOptions{Namespace: "kube-system", Exact: at},
		func(raw []byte) error {
			n++
			if t, err := time.Parse(time.RFC3339Nano,
				gjson.GetBytes(raw, "spec.renewTime").String()); err == nil && t.After(h.renewed) {
				h.renewed = t
			}
			meta := gjson.GetBytes(raw, "metadata")
			_, err := fmt.Fprintf(digest, "%q %q %q\n", meta.Get("name").String(), meta.Get("uid").String(),
				meta.Get("resourceVersion").String())
			return err
		})
	switch {
	case errors.Is(err, kube.ErrExpired), errors.Is(err, kube.ErrExactRefused),
		apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return history{}, nil
	case err != nil:
		return history{}, err
	case n > 0:
		h.mark = hex.EncodeToString(digest.Sum(nil))
	}
	return h, nil
}
