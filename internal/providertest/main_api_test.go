//go:build api

package providertest_test

import (
	"os"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
)

var servers *kubetest.Servers

func TestMain(m *testing.M) {
	os.Exit(kubetest.Main(m, 2, func(s *kubetest.Servers) { servers = s }))
}
