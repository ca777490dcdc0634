package move

import (
	"errors"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWhatAWebhookRefusesIsRetried, and no other error.
func TestWhatAWebhookRefusesIsRetried(t *testing.T) {
	pools := schema.GroupResource{Group: "ipam.cluster.x-k8s.io", Resource: "inclusterippools"}
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"forbidden":   {apierrors.NewForbidden(pools, "a", errors.New("in use")), 3},
		"bad request": {apierrors.NewBadRequest("Pool has IPAddresses allocated"), 3},
		"conflict":    {apierrors.NewConflict(pools, "a", errors.New("changed")), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := retryRefused(t.Context(), func() error {
				if calls++; calls < 3 {
					return tt.err
				}
				return nil
			})
			if calls != tt.want || (err == nil) != (tt.want == 3) {
				t.Errorf("%s: %d calls, want %d: %v", name, calls, tt.want, err)
			}
		})
	}
}
