package capi

import "slices"

// equinixProviders is cluster-api-provider-packet.
func equinixProviders() []Project {
	row := Row{Source: "cluster-api-provider-packet v0.9, controllers (IsPaused of its Cluster)"}
	return []Project{{Name: "Equinix Metal (Packet)", Versions: "0.9",
		Rows: slices.Concat(withTemplate(row, infraKind("PacketCluster"))[:1],
			withTemplate(row, infraKind("PacketMachine"))),
		ByHand: "The API key is in the namespace of the provider: install the provider with it. The " +
			"provider is no longer developed."}}
}
