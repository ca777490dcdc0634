package capi

import "github.com/mgmtd/mgmtd/internal/object"

// hostedRows are the kinds of control planes that run as Pods of the management cluster.
func hostedRows() []Row {
	return []Row{
		{GroupKind: object.GroupKind{Group: GroupControlPlane, Kind: "K0smotronControlPlane"},
			Source: "k0sproject/k0smotron, api/controlplane/v1beta1 (etcd as a StatefulSet)",
			Pause:  PauseWithCluster, HostedEtcd: true},
		{GroupKind: object.GroupKind{Group: GroupControlPlane, Kind: "KamajiControlPlane"},
			Source: "clastix/cluster-api-control-plane-provider-kamaji, api/v1alpha1 (spec.dataStoreName)",
			Pause:  PauseWithCluster, HostedEtcd: true},
		{GroupKind: object.GroupKind{Group: "hypershift.openshift.io", Kind: "HostedControlPlane"},
			Source: "openshift/hypershift, api/hypershift/v1beta1 (spec.etcd)",
			Pause:  PauseUnknown, HostedEtcd: true},
	}
}
