package capi

// magnumProviders are the two drivers of OpenStack Magnum. They have no kinds of their own: their
// clusters are Clusters of Cluster API, and what they keep besides is in the database of Magnum.
func magnumProviders() []Project {
	const drain = "Before a move, let every Magnum cluster leave *_IN_PROGRESS, and stop the " +
		"conductors. A cluster in DELETE_IN_PROGRESS that the new management cluster does not have yet " +
		"counts as deleted: its application credential and certificates are removed. Move all " +
		"clusters, point the driver at the target, and start the conductors."
	return []Project{
		{Name: "OpenStack Magnum, driver magnum-capi-helm", Versions: "none", ByHand: drain},
		{Name: "OpenStack Magnum, driver magnum-cluster-api (VEXXHOST)", Versions: "0.38",
			ByHand: drain + " All clusters are in the namespace magnum-system. The Secrets " +
				"`<cluster>-cloud-config` are captured as resources of their ClusterResourceSets."},
	}
}
