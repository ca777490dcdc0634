//go:build api

package capi_test

import (
	"os"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
)

var servers *kubetest.Servers

func TestMain(m *testing.M) {
	os.Exit(kubetest.Main(m, 1, func(s *kubetest.Servers) { servers = s }))
}
