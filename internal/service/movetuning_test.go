package service

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestALimitOfThePauseIsSetUnlessTheRequestHasNone: 0 is a request, too.
func TestALimitOfThePauseIsSetUnlessTheRequestHasNone(t *testing.T) {
	for want, tuning := range map[time.Duration]*mgmtv1.RestoreTuning{
		DefaultMaxPause: nil,
		0:               {MaxPause: durationpb.New(0)},
		time.Hour:       {MaxPause: durationpb.New(time.Hour)},
	} {
		if got := moveTuningFromProto(tuning).MaxPause; got != want {
			t.Errorf("%v: got %s, want %s", tuning, got, want)
		}
	}
}
