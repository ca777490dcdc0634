package object

// realityDefinitions are the codes of the comparison of a snapshot with the workload clusters as
// they are.
func realityDefinitions() []Definition { //nolint:funlen // a table
	return []Definition{
		{
			Code: CodeKubeconfigMissing, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The Secret with the kubeconfig of the workload cluster is not in the snapshot.",
			Next: "Nothing, when the provider of the control plane makes it again, as a kubeadm control " +
				"plane does. Otherwise restore it from an older snapshot.",
		},
		{
			Code: CodeKubeconfigInvalid, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The kubeconfig of the workload cluster is damaged, or relies on programs, files or " +
				"a proxy, which are never used from a snapshot.",
			Next: "Compare the Machines of the workload cluster with its Nodes by hand.",
		},
		{
			Code: CodeKubeconfigExpired, Area: AreaPlan, Severities: []Severity{Info, Warning},
			Meaning: "The client certificate in the kubeconfig of the workload cluster has expired, so " +
				"that the workload cluster cannot be compared with the snapshot. It is information where " +
				"the restore renews it before the release.",
			Next: "Let the restore renew it, which it does from the CA of the snapshot when it is asked " +
				"to and Cluster API made the kubeconfig. Otherwise a kubeadm control plane renews it after " +
				"the release. Renew one that a user provided by hand.",
		},
		{
			Code: CodeCAMismatch, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			ForcedIn: Restores,
			Meaning: "The CA of the snapshot is not that of the workload cluster: the certificate of its " +
				"API server or the kubeconfig is of another one. The workload cluster was made again since, " +
				"or its Secrets were swapped.",
			Next: "Use a snapshot of the workload cluster that there is, or leave it out. Override this " +
				"only when another server than the workload cluster answers at that address from this host.",
		},
		{
			Code: CodeMachinesCompared, Area: AreaPlan, Severities: []Severity{Info},
			Meaning: "How many Machines of the snapshot have a Node in their workload cluster, and of how " +
				"many workload clusters etcd could not be asked for its members, so that its Pods counted.",
			Next: "Nothing: each difference has a finding of its own. Where etcd could not be asked, the " +
				"finding has a reason, such as a kubeconfig without the right to create pods/portforward.",
		},
		{
			Code: CodeRealityUnknown, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The API servers of some workload clusters do not answer this host, so that their " +
				"Machines were not compared with their Nodes.",
			Next: "Plan from a host that reaches them, or compare the Machines with the infrastructure.",
		},
		{
			Code: CodeMachinesGone, Area: AreaPlan, Severities: []Severity{Error, Warning}, Forceable: true,
			ForcedIn: Restores,
			Meaning: "The Node of a Machine of the snapshot is gone from the workload cluster: it was " +
				"deleted or replaced since. After a release a health check or its owner deletes the Machine " +
				"and makes another one.",
			Next: "Use a newer snapshot. When there is none, override this: health checks then leave " +
				"these Machines alone until the check after the release has passed.",
		},
		{
			Code: CodeNodesUnknown, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "Nodes of the workload cluster are of no Machine of the snapshot. They joined since, " +
				"or are not of Cluster API.",
			Next: "Use a newer snapshot, or remove their machines by hand after the restore.",
		},
		{
			Code: CodeControlPlaneUnknown, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Meaning: "A Node of the control plane, an etcd member or, where etcd could not be asked, an " +
				"etcd Pod is of no Machine of the snapshot. The controller of a kubeadm control plane " +
				"removes etcd members that it does not know. It is a warning for a workload cluster that " +
				"stays paused.",
			Next: "Use a newer snapshot that has the Machine. When there is none, restore without the " +
				"release and create the Machines on the target before it.",
		},
		{
			Code: CodeOwnCluster, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The Cluster is that of the source management cluster itself. A restore keeps it " +
				"paused: its Machines are dead, and controllers would replace them. After a move, the target " +
				"manages the machines on which the source runs; or its own machines, when the Cluster is " +
				"that of the target.",
			Next: "After a restore, leave it paused until it is decided what becomes of the old " +
				"management cluster. Move it alone, after all other workload clusters.",
		},
		{
			Code: CodeStaysPaused, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "The Cluster is on the target already, and somebody has paused it there; what is " +
				"missing is restored. Or somebody has paused it on the source of a move after the plan, in " +
				"which the workload clusters that were paused by then have a column. It stays paused.",
			Next: "Unpause it on the target (spec.paused: false) after the restore or the move.",
		},
		{
			Code: CodeHostedControlPlane, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true, ForcedIn: Restores,
			Meaning: "The control plane of the workload cluster ran in the source management cluster, and " +
				"its etcd with it. After a release the provider makes an empty one.",
			Next: "Bring the etcd back on the target by hand, from its own backup, and leave the workload " +
				"cluster out until then. Override this when its etcd runs elsewhere.",
		},
	}
}
