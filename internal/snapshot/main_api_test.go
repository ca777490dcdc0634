//go:build api

package snapshot_test

import (
	"os"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
)

var servers *kubetest.Servers

// crowded is the server of tests that make very many objects. On server 0 each snapshot of every
// later test would read them, several times.
const crowded = 1

func TestMain(m *testing.M) {
	os.Exit(kubetest.Main(m, 2, func(s *kubetest.Servers) { servers = s }))
}
