package object

// Side names a management cluster: its display name, and the UID of its kube-system namespace,
// which is its identity.
type Side struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}
