//go:build api

package restore_test

import (
	"os"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
)

var servers *kubetest.Servers

func TestMain(m *testing.M) {
	if os.Getenv(crashChild) != "" {
		os.Exit(runCrashChild())
	}
	os.Exit(kubetest.Main(m, 2, func(s *kubetest.Servers) { servers = s }))
}
