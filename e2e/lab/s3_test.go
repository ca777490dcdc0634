package lab_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/e2e/lab"
)

// TestS3ServerAnswersAgainAfterARestart needs only the program of the S3 server. It runs with the
// other tests of real servers (make test-long).
func TestS3ServerAnswersAgainAfterARestart(t *testing.T) {
	home, err := lab.FindHome()
	if err != nil {
		t.Fatal(err)
	}
	s, err := lab.StartS3(t.Context(), home, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		if err := s.CreateBucket("snapshots"); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	get := func() error {
		resp, err := client.Get(s.Endpoint)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	if err := get(); err != nil {
		t.Errorf("after start: %v", err)
	}
	s.Kill()
	if err := get(); err == nil {
		t.Error("it answers after Kill")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := get(); err != nil {
		t.Errorf("after restart: %v", err)
	}
}
