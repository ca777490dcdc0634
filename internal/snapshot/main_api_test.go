//go:build api

package snapshot_test

import (
	"os"
	"testing"

	"github.com/mgmtd/mgmtd/internal/mgmt/mgmttest"
)

var servers *mgmttest.Servers

func TestMain(m *testing.M) {
	os.Exit(mgmttest.Main(m, 1, func(s *mgmttest.Servers) { servers = s }))
}
