package main

import (
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newMgmt(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "mgmt",
		Short: "List, check and fence management clusters",
		Long: `List, check and fence management clusters: those of the daemon's config, or standalone
those of --source-kubeconfig and --target-kubeconfig.`,
	}, newMgmtList(p), newMgmtCheck(p), newMgmtFence(p))
}

// writeMgmt writes one management cluster and its providers.
func writeMgmt(w io.Writer, m *mgmtv1.Mgmt) {
	var l pairs
	l.add("name", m.GetName())
	l.add("uid", m.GetUid())
	l.add("kubernetes", m.GetKubernetesVersion())
	l.add("error", m.GetError())
	if m.GetError() == "" {
		l.add("workload clusters", number(m.GetWorkloadClusters()))
	}
	for i, provider := range m.GetProviders() {
		name := "providers"
		if i > 0 {
			name = ""
		}
		l.addRow(name, provider.GetName()+" "+provider.GetVersion()+" in "+provider.GetNamespace())
	}
	l.write(w)
}
