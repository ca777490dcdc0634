package object

// gitOpsDefinitions are the codes about tools that apply the objects of workload clusters.
func gitOpsDefinitions() []Definition {
	return []Definition{
		{
			Code: CodeGitOpsOwner, Area: AreaPlan, Severities: []Severity{Error, Warning, Info},
			Meaning: "A tool applies objects of the workload cluster: Flux, Argo CD, Fleet, k0rdent, " +
				"Azimuth, or people with Helm. On the source of a move it would end the pause, and " +
				"create them again once they are gone, so it is an error there until the owner is " +
				"suspended up to its root. On the target it may change or remove what is not complete " +
				"yet. After a rollback from marks it would create what was removed again, unpaused.",
			Next: "Suspend the owner from the root down, with the commands that the hint names; a move " +
				"can do so itself. Point it at the target afterwards.",
		},
		{
			Code: CodeGitOpsOwnerRemote, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true, ForcedIn: Moves,
			Meaning: "Objects of the workload cluster name an owner that the management cluster does not " +
				"have, such as an Application of an Argo CD elsewhere or a cluster of Magnum; or a tool " +
				"wrote them, and nothing says from which owner. Whether it is suspended cannot be seen.",
			Next: "Find out where the tool runs and suspend the owner there. Override this when it is " +
				"suspended, or gone.",
		},
		{
			Code: CodeGitOpsUnread, Area: AreaPlan, Severities: []Severity{Error, Warning},
			Forceable: true, ForcedIn: Moves,
			Meaning: "The owners of one kind could not be listed, so nobody knows whether one of them " +
				"applies objects of the workload cluster.",
			Next: "Grant list of that kind. Override this when no owner of the kind applies these " +
				"objects, or all of them are suspended.",
		},
		{
			Code: CodeGitOpsSuspended, Area: AreaRun, Severities: []Severity{Warning},
			Meaning: "The move suspended an owner on the source, and leaves it suspended: resumed, it " +
				"would create there what has moved.",
			Next: "Remove from Git what has moved, or point it at the target, then resume the owner.",
		},
		{
			Code: CodeAutoscaler, Area: AreaPlan, Severities: []Severity{Warning},
			Meaning: "A cluster autoscaler works on the workload cluster through Cluster API, or a Secret " +
				"has a kubeconfig of the source with which one may. A pause does not stop it: it changes " +
				"replicas, and that takes effect when the pause ends. With a kubeconfig of the source it " +
				"goes on to work there after the move.",
			Next: "Scale it to zero until the workload cluster is released, and run it with a kubeconfig " +
				"of the target from then on.",
		},
	}
}
