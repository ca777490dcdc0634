//go:build api

package restore_test

import (
	"os"
	"testing"

	"github.com/mgmtd/mgmtd/internal/mgmt/mgmttest"
)

var servers *mgmttest.Servers

func TestMain(m *testing.M) {
	if os.Getenv(crashChild) != "" {
		os.Exit(runCrashChild())
	}
	os.Exit(mgmttest.Main(m, 2, func(s *mgmttest.Servers) { servers = s }))
}
