//go:build api

package move_test

import (
	"os"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
)

var servers *kubetest.Servers

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		os.Exit(runOrder(text))
	}
	os.Exit(kubetest.Main(m, 2, func(s *kubetest.Servers) { servers = s }))
}
