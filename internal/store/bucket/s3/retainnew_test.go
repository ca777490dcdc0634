package s3

import "testing"

// TestTheRecordOfACopyRunIsNotRetained: the run removes it when it ends, and there are many.
func TestTheRecordOfACopyRunIsNotRetained(t *testing.T) {
	b := &Bucket{options: Options{RetentionDays: 30}}
	for key, retained := range map[string]bool{
		"copying/20260301T000000.000Z-0123456789ab.json":     false,
		"copied/x/1-20260301T000000.000Z-0123456789ab.json":  true,
		"snapshots/x/20260301T000000.000Z-0123456789ab.json": true,
	} {
		if until := b.retainNew(key); until.IsZero() == retained {
			t.Errorf("%s is retained until %s", key, until)
		}
	}
}
