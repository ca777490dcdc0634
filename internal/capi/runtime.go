package capi

// runtimeRows are the kinds of the Runtime SDK.
func runtimeRows() []Row {
	return []Row{
		// A class whose extensions are not discovered is not reconciled, and a topology that calls
		// them fails. An ExtensionConfig only registers handlers, so it is live from its creation, on
		// both sides of a move. Its controller injects the CA of the extension that runs there
		// (cluster-api v1.14, core/reconcilers/extensionconfig/extensionconfig_controller.go).
		{GroupKind: ExtensionConfig, Source: "cluster-api v1.14, api/runtime/v1beta2", Shared: true,
			Pause: PauseNever, ReconciledFirst: true, PerManagementCluster: true,
			RunsCode:       "has a webhook called for the workload clusters of the target",
			GoodConditions: []string{"Discovered"}},
	}
}
