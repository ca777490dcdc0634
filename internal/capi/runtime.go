package capi

// runtimeRows are the kinds of the Runtime SDK.
func runtimeRows() []Row {
	return []Row{
		{GroupKind: ExtensionConfig, Source: "cluster-api v1.14, api/runtime/v1beta2", Shared: true,
			Pause: PauseByAnnotation},
	}
}
