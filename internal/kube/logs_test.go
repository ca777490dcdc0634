package kube

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"
)

// TestErrorsOfClientGoAreNotLogged: they are returned as well, and are no lines of ours.
func TestErrorsOfClientGoAreNotLogged(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = file
	DiscardLogs()
	klog.ErrorS(errors.New("no answer"), "read a response")
	klog.Background().Error(errors.New("no answer"), "read a response")
	klog.Flush()
	os.Stderr = stderr
	text, err := os.ReadFile(file.Name())
	if err != nil || len(text) > 0 {
		t.Errorf("stderr has %q, %v", text, err)
	}
}
