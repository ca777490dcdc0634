package snapshot

import (
	"context"
	"errors"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// failingSource fails with err and counts how often it is asked.
type failingSource struct {
	capture.Source
	err   error
	asked int
}

func (s *failingSource) Kinds(context.Context) ([]kube.Kind, error) {
	s.asked++
	return nil, s.err
}

// TestACaptureInMemoryIsTriedAgain: of a kind that cannot be read as of the cut, an object may
// change between its list and its fetch, as well as a resourceVersion may expire.
func TestACaptureInMemoryIsTriedAgain(t *testing.T) {
	for err, tries := range map[error]int{
		capture.ErrHistory: captureTries, kube.ErrExpired: captureTries, errors.New("forbidden"): 1,
	} {
		s := &failingSource{err: err}
		_, _, got := CaptureInMemory(t.Context(), Options{Source: s})
		if !errors.Is(got, err) || s.asked != tries {
			t.Errorf("%v: asked %d times, want %d: %v", err, s.asked, tries, got)
		}
	}
}
