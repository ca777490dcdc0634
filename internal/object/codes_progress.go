package object

// progressDefinitions are the codes of the pre-flight of a move that are about what controllers of
// the source are in the middle of, and about what they would do with a copy.
func progressDefinitions() []Definition { //nolint:funlen // a table
	const wait = "Let it end, and move the workload cluster after that. Otherwise be ready to " +
		"accept the workload cluster after its release."
	return []Definition{
		{
			Code: CodeProvisioning, Area: AreaMove, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "The workload cluster is still being provisioned: its infrastructure or its control " +
				"plane is not there yet, a Machine has no Node, or a MachinePool has no infrastructure. " +
				"What a provider has ordered and not recorded yet would be ordered once more.",
			Next: "Wait until all of it is provisioned, and move the workload cluster after that.",
		},
		{
			Code: CodeRollingOut, Area: AreaMove, Severities: []Severity{Warning},
			Meaning: "Machines of the workload cluster are being replaced, added or removed, or those of " +
				"a MachinePool have not joined yet. The pause interrupts that, and the target goes on with " +
				"it. When Machines come or go there before the copy is checked, the move pauses the " +
				"workload cluster again on the target.",
			Next: wait,
		},
		{
			Code: CodeUpgrading, Area: AreaMove, Severities: []Severity{Warning},
			Meaning: "The topology of the workload cluster is being upgraded or changed. The move " +
				"interrupts it like a rollout.",
			Next: wait,
		},
		{
			Code: CodeRemediating, Area: AreaMove, Severities: []Severity{Warning},
			Meaning: "Machines are unhealthy, and a controller replaces or repairs them. The move " +
				"interrupts that like a rollout.",
			Next: wait,
		},
		{
			Code: CodeUpdatingInPlace, Area: AreaMove, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "Machines are being updated in place. A runtime extension of the source works on " +
				"them, which no pause stops, and that of the target would work on them, too.",
			Next: "Let the updates end. Override this only when both management clusters call the same " +
				"runtime extension, or when that of the source has stopped.",
		},
		{
			Code: CodeHooksPending, Area: AreaMove, Severities: []Severity{Warning},
			Meaning: "Calls of runtime hooks of the Cluster are pending. The target makes them after the " +
				"release, also those that the source has made and that were to be repeated.",
			Next: "Check that the runtime extensions answer to the target, or wait until the hooks are " +
				"done.",
		},
		{
			Code: CodeWouldAdopt, Area: AreaMove, Severities: []Severity{Error, Warning}, Forceable: true,
			Meaning: "A Machine or a MachineSet has no controller among its owners, and the selector of a " +
				"MachineSet, a MachineDeployment or a control plane matches its labels. That one would adopt " +
				"it, and remove Machines when it then has too many. It is a warning while the Cluster " +
				"of the adopter is paused.",
			Next: "Correct the labels of the object or the selector, or set the right owner reference. " +
				"Override this when the adoption is what you want.",
		},
		{
			Code: CodeRetireRefused, Area: AreaMove, Severities: []Severity{Error, Warning},
			Forceable: true,
			Meaning: "A policy or a webhook of the source refuses what a move does at its end: to take " +
				"the finalizers off an object, or its deletion. The workload cluster would be released " +
				"on the target and stay on the source, paused. It is a warning when a webhook of a provider " +
				"refuses the deletion, since it may allow that for an object with the annotation " +
				"clusterctl.cluster.x-k8s.io/delete-for-move. Overridden, it also lets a move pause workload " +
				"clusters whose copies the target would not let be removed again.",
			Next: "Change the policy or the webhook on the source, or exempt the credentials of the move " +
				"from it, for as long as the move runs. Then plan again.",
		},
	}
}
