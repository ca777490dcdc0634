package autoscaler

// scale is the command that stops an autoscaler. It has the namespace and the name of the
// Deployment.
const scale = "kubectl scale deployment -n %s %s --replicas=0, and run it with the target " +
	"afterwards"
